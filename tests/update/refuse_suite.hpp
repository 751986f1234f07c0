#pragma once
/// Law 5: a refused load has written nothing, and the update goes on unharmed.

#include "../property.hpp"
#include "generators.hpp"
#include "layout_engine.hpp"

namespace wreload::test {

/// One call that has to be refused, given an open update in which `norm.weight` and FP8 row 0 of `q.weight` have come.
template <class Executor>
struct bad_load {
  const char* what;
  error_code code;
  const char* name;  ///< what the message names
  status (*call)(engine<Executor>&, update<Executor>&, const reference::checkpoint&);
};

template <class Executor>
std::vector<bad_load<Executor>> bad_loads() {
  using run = engine<Executor>;
  using open = update<Executor>;
  using from = const reference::checkpoint;
  // A tensor of the checkpoint under another name, dtype or shape; bytes enough for any of them.
  static const auto as = [](run& e, open& u, from& all, const char* name, dtype type, const shape& extents,
                            const box& part = {}) {
    tensor_ref tensor = e.place(all.at("o_proj.weight"));
    tensor.type = type;
    tensor.extents = extents;
    return u.load(name, tensor, part);
  };
  return {
      {"an unknown name", error_code::unknown_name, "q.bias",
       [](run& e, open& u, from& all) { return as(e, u, all, "q.bias", dtype::bf16, {5}); }},
      {"a runtime name in checkpoint form", error_code::unknown_name, "qkv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "qkv.weight", dtype::bf16, {9, 7});
       }},
      {"a checkpoint name in runtime form", error_code::unknown_name, "kv.weight",
       [](run& e, open& u, from& all) {
         return u.load("kv.weight", e.place(all.at("kv.weight")), {}, load_form::runtime);
       }},
      {"a dtype that nobody declared", error_code::wrong_dtype, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp16, {4, 7});
       }},
      {"fp8 of the other kind", error_code::wrong_dtype, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e5m2, {4, 7});
       }},
      {"the right bytes as u8", error_code::wrong_dtype, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::u8, {4, 7});
       }},
      {"a dtype that would have to be rounded", error_code::wrong_dtype, "o_proj.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "o_proj.weight", dtype::fp32, {6, 7});
       }},
      {"a scale of a dtype that does not widen", error_code::wrong_dtype, "kv.weight_scale_inv",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight_scale_inv", dtype::fp16, {2, 3});
       }},
      {"dtype none", error_code::wrong_dtype, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::none, {4, 7});
       }},
      {"too many rows", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {5, 7});
       }},
      {"transposed", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {7, 4});
       }},
      {"another rank", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) { return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {28}); }},
      {"a leading dim of one", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {1, 4, 7});
       }},
      {"no elements", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {0, 7});
       }},
      {"a negative extent", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {-4, -7});
       }},
      {"an extent whose product wraps", error_code::wrong_shape, "step",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "step", dtype::i64, {std::int64_t{1} << 33, std::int64_t{1} << 31});
       }},
      {"a scale grid by floor division", error_code::wrong_shape, "q.weight_scale_inv",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "q.weight_scale_inv", dtype::fp32, {2, 2});
       }},
      {"a per-tensor scale", error_code::wrong_shape, "q.weight_scale_inv",
       [](run& e, open& u, from& all) { return as(e, u, all, "q.weight_scale_inv", dtype::fp32, {}); }},
      {"two elements for a scalar", error_code::wrong_shape, "step",
       [](run& e, open& u, from& all) { return as(e, u, all, "step", dtype::i64, {2}); }},
      {"a box outside", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {2, 7}, {{3, 0}, {2, 7}});
       }},
      {"a negative box", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {2, 7}, {{-1, 0}, {2, 7}});
       }},
      {"a box whose end wraps", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {2, 7}, {{INT64_MAX, 0}, {2, 7}});
       }},
      {"a box of another rank", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {2}, {{0}, {2}});
       }},
      {"a tensor that does not fill its box", error_code::wrong_shape, "kv.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "kv.weight", dtype::fp8_e4m3, {4, 7}, {{0, 0}, {2, 7}});
       }},
      {"a null pointer", error_code::bad_argument, "kv.weight",
       [](run&, open& u, from&) {
         return u.load("kv.weight", {.data = nullptr, .type = dtype::fp8_e4m3, .extents = {4, 7}});
       }},
      {"strides of another rank", error_code::bad_argument, "kv.weight",
       [](run& e, open& u, from& all) {
         tensor_ref tensor = e.place(all.at("kv.weight"));
         tensor.strides = {1};
         return u.load("kv.weight", tensor);
       }},
      {"a whole tensor again", error_code::duplicate, "norm.weight",
       [](run& e, open& u, from& all) { return e.send(u, all, "norm.weight"); }},
      {"an overlapping part", error_code::duplicate, "q.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "q.weight", dtype::fp8_e4m3, {3, 7}, {{0, 0}, {3, 7}});
       }},
      {"the same row in BF16", error_code::mixed_formats, "q.weight",
       [](run& e, open& u, from& all) {
         return as(e, u, all, "q.weight", dtype::bf16, {1, 2}, {{0, 5}, {1, 2}});
       }},
      {"the same row in runtime form", error_code::mixed_formats, "q.weight",
       [](run& e, open& u, from& all) {
         tensor_ref tensor = e.place(all.at("o_proj.weight"));
         tensor.type = dtype::bf16;
         tensor.extents = {1, 2};
         return u.load("qkv.weight", tensor, {{0, 5}, {1, 2}}, load_form::runtime);
       }},
      {"a second spelling", error_code::duplicate, "q.weight_scale",
       [](run& e, open& u, from& all) { return u.load("q.weight_scale", e.place(all.at("q.weight_scale_inv"))); }},
      {"runtime form of another dtype", error_code::wrong_dtype, "qkv.weight",
       [](run& e, open& u, from& all) {
         tensor_ref tensor = e.place(all.at("o_proj.weight"));
         tensor.extents = {9, 7};
         return u.load("qkv.weight", tensor, {}, load_form::runtime);
       }},
      {"runtime form of another shape", error_code::wrong_shape, "qkv.weight",
       [](run& e, open& u, from& all) {
         tensor_ref tensor = e.place(all.at("o_proj.weight"));
         tensor.type = dtype::bf16;
         tensor.extents = {8, 7};
         return u.load("qkv.weight", tensor, {}, load_form::runtime);
       }},
  };
}

/// An update in which the first FP8 row of `q.weight`, its scale, and `norm.weight` have come.
template <class Executor>
update<Executor> begin_for_refusals(engine<Executor>& tested, const reference::checkpoint& all) {
  update<Executor> open = tested.start();
  const parcel row = pack("q.weight", all.at("q.weight"), {0, 0}, {1, 5}, 0);
  must(open.load("q.weight", tested.place({row.type, {1, 5}, row.bytes}), row.part));
  must(tested.send(open, all, "q.weight_scale_inv"));
  must(tested.send(open, all, "norm.weight"));
  return open;
}

/// Sends the rest and finishes.
template <class Executor>
void finish_after_refusals(engine<Executor>& tested, update<Executor>& open, const reference::checkpoint& all) {
  for (const auto& [offset, size] : {std::pair{shape{0, 5}, shape{1, 2}}, std::pair{shape{1, 0}, shape{4, 7}}}) {
    const parcel rest = pack("q.weight", all.at("q.weight"), offset, size, 0);
    must(open.load("q.weight", tested.place({rest.type, {size[0], size[1]}, rest.bytes}), rest.part));
  }
  for (const auto& [name, value] : all)
    if (!name.starts_with("q.") && name != "norm.weight") must(open.load(name, tested.place(value)));
  must(open.finish());
  tested.demand_cold(all);
}

TEST_CASE_TEMPLATE_DEFINE("law 5: each refused load has written nothing, and the update goes on", Executor,
                          refuse_single) {
  engine<Executor> tested(small_model(), 1);
  const auto old = random_checkpoint(tested.layers(), 1);
  const auto all = random_checkpoint(tested.layers(), 2);
  for (const bad_load<Executor>& bad : bad_loads<Executor>()) {
    CAPTURE(bad.what);
    tested.reload(old);
    update<Executor> open = begin_for_refusals(tested, all);
    const auto before = tested.image();
    const report counted = open.report();
    const status refused = bad.call(tested, open, all);
    check_refused(refused, bad.code, bad.name);
    CHECK(!refused.got.empty());
    CHECK(before == tested.image());
    CHECK(open.report().loaded.tensors == counted.loaded.tensors);
    CHECK(open.report().loaded.bytes == counted.loaded.bytes);
    CHECK(open.report().first_error.message() == refused.message());
    CHECK((tested.model().state() == model_state::updating) == owns_at_once());
    finish_after_refusals(tested, open, all);
    CHECK(open.report().first_error.message() == refused.message());
  }
}

TEST_CASE_TEMPLATE_DEFINE("law 5: all refusals in one update", Executor, refuse_all) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 2);
  update<Executor> open = begin_for_refusals(tested, all);
  const auto before = tested.image();
  const auto bad = bad_loads<Executor>();
  for (const bad_load<Executor>& each : bad) CHECK(each.call(tested, open, all).code == each.code);
  CHECK(before == tested.image());
  CHECK(open.report().first_error.param == "q.bias");
  finish_after_refusals(tested, open, all);
}

TEST_CASE_TEMPLATE_DEFINE("law 5: a batch is all or nothing", Executor, refuse_batch) {
  engine<Executor> tested(small_model(), 1);
  const auto all = random_checkpoint(tested.layers(), 2);
  tested.reload(random_checkpoint(tested.layers(), 1));
  const auto whole = [&](std::string_view name) {
    return piece{.name = name, .tensor = tested.place(all.at(std::string(name)))};
  };
  const auto spoiled = [&](error_code code) {
    switch (code) {
      case error_code::unknown_name: return piece{.name = "nobody", .tensor = tested.place(all.at("bias"))};
      case error_code::wrong_shape: {
        piece one = whole("bias");
        one.tensor.extents = {4};
        return one;
      }
      case error_code::mixed_formats: {
        piece one = whole("kv.weight");  // as BF16, the FP8 one is in the batch
        one.tensor.type = dtype::bf16;
        one.tensor.extents = {1, 3};
        one.part = {{0, 0}, {1, 3}};
        return one;
      }
      default: return whole("kv.weight");  // a duplicate inside the batch
    }
  };
  for (const error_code code :
       {error_code::unknown_name, error_code::wrong_shape, error_code::duplicate, error_code::mixed_formats})
    for (std::size_t at = 0; at < 5; ++at) {
      update<Executor> open = tested.start();
      const auto before = tested.image();
      std::vector<piece> batch = {whole("kv.weight"), whole("kv.weight_scale_inv"), whole("norm.weight"),
                                  whole("step")};
      batch.insert(batch.begin() + static_cast<std::ptrdiff_t>(at), spoiled(code));
      const status refused = open.load(batch);
      CHECK(!refused.ok());
      const bool again = code == error_code::mixed_formats;  // the bytes have come already, in another format
      if (at == 4) check_refused(refused, again ? error_code::duplicate : code);
      CHECK(before == tested.image());
      CHECK(open.report().loaded.tensors == 0);
      must(tested.send(open, all));  // nothing of the batch counts as arrived
      must(open.finish());
      tested.demand_cold(all);
    }
}

TEST_CASE_TEMPLATE_DEFINE("law 5: a tensor with several landings is refused by the first that cannot take it", Executor,
                          refuse_landings) {
  // `shared` is read by a layer that widens it and by one that does not.
  std::vector<reference::layer> layers = {plain("a", {4}, dtype::fp32, {dtype::bf16}), plain("b", {4}, dtype::bf16)};
  layers[0].shards[0].module = layers[1].shards[0].module = "shared";
  engine<Executor> tested(layers);
  update<Executor> open = tested.start();
  const auto before = tested.image();
  check_refused(open.load("shared", tested.place(floats(4, 1.0F))), error_code::wrong_dtype, "shared");
  CHECK(before == tested.image());
  const reference::checkpoint all = {{"shared", halves(4, 0x3F80)}};
  must(tested.send(open, all));
  must(open.finish());
  tested.demand_cold(all);
}

TEST_CASE_TEMPLATE_DEFINE("law 5: a declared subset refuses other names, and goes on", Executor, refuse_scope) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  const auto next = random_checkpoint(tested.layers(), 2);
  const std::vector<std::string_view> names = {"norm.weight"};
  update<Executor> open = tested.start_partial(names);
  const auto before = tested.image();
  check_refused(tested.send(open, next, "bias"), error_code::out_of_scope, "bias");
  check_refused(open.load("bias", tested.place(floats(3, 2.0F)), {}, load_form::runtime), error_code::out_of_scope,
                "bias");
  CHECK(before == tested.image());
  must(tested.send(open, next, "norm.weight"));
  must(open.finish());
  tested.demand_cold(reference::overlay(all, {{"norm.weight", next.at("norm.weight")}}));
}

TEST_CASE_TEMPLATE_DEFINE("a Static param takes no load, and every update leaves it alone", Executor, refuse_static) {
  layout_engine<Executor> tested;
  tested.template add<StaticTable>("layer", vector_of("m", 3));
  must(tested.model().seal());
  const auto table = floats(3, 7.0F);
  tested.memory().write(tested.data("layer.table"), table.bytes.data(), 12);
  update<Executor> open = tested.start();
  check_refused(open.load("m.table", tested.place(floats(3, 1.0F))), error_code::unknown_name, "m.table");
  check_refused(open.load("layer.table", tested.place(floats(3, 1.0F)), {}, load_form::runtime),
                error_code::unknown_name, "layer.table");
  must(open.load("m.weight", tested.place(halves(3, 0x4000))));
  must(open.finish());
  CHECK(tested.bytes("layer.table") == table.bytes);
}

}  // namespace wreload::test
