#pragma once
/// NVFP4 layers under the laws: maps applied while landing, scalars combined at `finish`.

#include <algorithm>
#include <limits>

#include "closed_checks.hpp"
#include "failing_executor.hpp"
#include "nvfp4_engine.hpp"

namespace wreload::test {

template <class Executor>
void complete_update(nvfp4_engine<Executor>& to, const reference::checkpoint& all) {
  update<Executor> open = to.start();
  send_delivery(to, open, draw_delivery(all));
  must(open.finish());
  to.memory().drop_sources();
}

/// Files spell packed fp4 U8; a trainer may say what it is.
inline void spell_some_fp4(reference::checkpoint& all) {
  for (auto& [name, value] : all)
    if (value.type == dtype::u8 && one_in(2)) value.type = dtype::fp4_e2m1x2;
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4, law 1: A -> B -> A equal a cold start", Executor, nvfp4_cold_equal) {
  property("any order and cut; input scales left out", [] {
    const std::vector<nv::layer> layers = draw_nvfp4_model();
    RC_LOG() << in_words(layers);
    nvfp4_engine<Executor> tested(layers);
    const auto a = nvfp4_checkpoint(layers, draw_seed(), !one_in(3));
    auto b = nvfp4_checkpoint(layers, draw_seed());
    spell_some_fp4(b);
    complete_update(tested, a);
    tested.demand_cold(a);
    const std::string kept = one_in(2) ? "input_scale" : "input_global_scale";
    b = named(b, kept, false);
    complete_update(tested, b);
    tested.demand_cold(over(a, b));
    complete_update(tested, a);
    tested.demand_cold(a);
  });
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4, laws 1 and 3: a partial update overlays what it sends and touches nothing else", Executor,
                          nvfp4_partial) {
  property("any tensors alone", [] {
    const std::vector<nv::layer> layers = draw_nvfp4_model();
    RC_LOG() << in_words(layers);
    nvfp4_engine<Executor> tested(layers);
    reference::checkpoint logical = nvfp4_checkpoint(layers, draw_seed());
    complete_update(tested, logical);
    for (std::int64_t left = draw_small(1, 3); left > 0; --left) {
      const auto next = draw_nvfp4_subset(nvfp4_checkpoint(layers, draw_seed(), false));
      const auto names = tested.names_of(next);
      update<Executor> open = tested.start({.scope = update_scope::partial(names)});
      send_delivery(tested, open, draw_delivery(next));
      must(open.finish());
      tested.memory().drop_sources();
      logical = over(logical, next);
      tested.demand_cold(logical);
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4, law 7: whatever an aborted update wrote, a complete one repairs it", Executor,
                          nvfp4_repair) {
  property("aborted after some pieces", [] {
    const std::vector<nv::layer> layers = draw_nvfp4_model();
    RC_LOG() << in_words(layers);
    nvfp4_engine<Executor> tested(layers);
    complete_update(tested, nvfp4_checkpoint(layers, draw_seed()));
    std::vector<parcel> sent = draw_delivery(nvfp4_checkpoint(layers, draw_seed()));
    sent.resize(static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(sent.size()))));
    update<Executor> torn = tested.start();
    send_delivery(tested, torn, sent);
    must(torn.abort());
    const auto repair = nvfp4_checkpoint(layers, draw_seed());
    complete_update(tested, repair);
    tested.demand_cold(repair);
  });
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: issue 4's linear layers, both back ends, A -> B -> B, with and without input scales", Executor,
                          nvfp4_linears) {
  const std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> sizes = {{{128, 128}, 128}, {{96, 104}, 80}, {{160, 96}, 192}};
  for (const nv::backend to : {nv::backend::cutlass, nv::backend::trtllm})
    for (const auto& [rows, hidden] : sizes) {
      nvfp4_engine<Executor> tested({nvfp4_linear("mlp.gate_up_proj", {{"mlp.gate_proj", rows[0]}, {"mlp.up_proj", rows[1]}}, hidden, to)});
      const auto a = nvfp4_checkpoint(tested.layers(), 1), b = nvfp4_checkpoint(tested.layers(), 2);
      tested.reload(a);
      tested.demand_cold(a);
      for (int round = 0; round < 2; ++round) {
        tested.reload(b);
        tested.demand_cold(b);
      }
      const auto c = named(nvfp4_checkpoint(tested.layers(), 3), ".input_scale", false);
      tested.reload(c);  // alpha: the new weight_scale_2, the stored input scale
      tested.demand_cold(over(b, c));
    }
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: issue 4's experts, whole, and the half of them in partial scope", Executor, nvfp4_moe) {
  for (const nv::backend to : {nv::backend::cutlass, nv::backend::trtllm}) {
    nvfp4_engine<Executor> tested({nvfp4_experts("mlp.experts", 4, 128, to == nv::backend::cutlass ? 192 : 384, to)});
    const auto a = nvfp4_checkpoint(tested.layers(), 1), b = nvfp4_checkpoint(tested.layers(), 2);
    tested.reload(a);
    tested.demand_cold(a);
    tested.reload(b);
    tested.demand_cold(b);
    reference::checkpoint half;
    for (const auto& entry : nvfp4_checkpoint(tested.layers(), 3))
      if (entry.first.starts_with("mlp.experts.1.") || entry.first.starts_with("mlp.experts.2.")) half.insert(entry);
    tested.reload_partial(half);
    tested.demand_cold(over(b, half));
  }
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4, law 3: one expert, and one scalar, touch no other byte", Executor, nvfp4_one_expert) {
  for (const nv::backend to : {nv::backend::cutlass, nv::backend::trtllm}) {
    nvfp4_engine<Executor> tested({nvfp4_experts("experts", 3, 64, 128, to)});
    const auto a = nvfp4_checkpoint(tested.layers(), 1);
    tested.reload(a);
    const auto before = tested.image();
    reference::checkpoint one;
    for (const auto& entry : nvfp4_checkpoint(tested.layers(), 2))
      if (entry.first.starts_with("experts.1.") && !entry.first.ends_with("input_scale")) one.insert(entry);
    tested.reload_partial(one);
    tested.demand_cold(over(a, one));
    for (const auto& entry : tested.image()) {
      const std::string& name = entry.first;
      const std::vector<std::byte>& bytes = entry.second;
      const std::vector<std::byte>& old = before.at(name);
      if (name.find("input_scale") != std::string::npos) {
        CHECK(bytes == old);
        continue;
      }
      const std::size_t slot = bytes.size() / 3;
      CHECK_MESSAGE(bytes != old, name);
      CHECK_MESSAGE(std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(slot), old.begin()), name);
      CHECK_MESSAGE(std::equal(bytes.end() - static_cast<std::ptrdiff_t>(slot), bytes.end(), old.end() - static_cast<std::ptrdiff_t>(slot)), name);
    }
    const auto now = tested.image();
    const reference::checkpoint scalar = {{"experts.2.up_proj.weight_scale_2", tensor_of<float>(dtype::fp32, {}, {3.0F})}};
    tested.reload_partial(scalar);
    tested.demand_cold(over(over(a, one), scalar));
    for (const auto& entry : tested.image()) {
      const std::string& name = entry.first;
      const bool follows = name == "experts.w13_weight_scale_2" || name == "experts.g1_alphas_up" || name == "experts.g1_scale_c";
      CHECK_MESSAGE((entry.second == now.at(name)) != follows, name);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4, law 4: computed once, and only what depends on what came", Executor, nvfp4_depends) {
  nvfp4_engine<failing_executor<Executor>> tested({nvfp4_linear("l", {{"l", 32}}, 64)});
  auto& executor = tested.model().executor();
  auto logical = nvfp4_checkpoint(tested.layers(), 1);
  tested.reload(logical);
  CHECK(executor.combine_calls == 1);  // one level, one batch
  CHECK(executor.combine_jobs == 2);
  const auto sends = [&](std::string_view ending, std::initializer_list<std::string_view> computed) {
    for (const char* name : {"l.alpha", "l.input_scale_inv"}) tested.spoil(name);
    const auto some = named(nvfp4_checkpoint(tested.layers(), 7), ending);
    executor.combine_calls = executor.combine_jobs = 0;
    tested.reload_partial(some);
    CHECK(executor.combine_jobs == static_cast<std::int64_t>(computed.size()));
    CHECK(executor.combine_calls == (computed.size() == 0 ? 0 : 1));
    logical = over(logical, some);
    const nv::image cold = nv::cold_image(tested.layers(), logical);
    for (const char* name : {"l.alpha", "l.input_scale_inv"}) {
      const bool wanted = std::find(computed.begin(), computed.end(), name) != computed.end();
      CHECK_MESSAGE(tested.is_spoiled(name) != wanted, name << " after " << ending);
      if (wanted) CHECK(tested.bytes(name) == cold.at(name));
    }
  };
  sends(".weight", {});
  sends(".weight_scale", {});
  sends(".weight_scale_2", {"l.alpha"});
  sends(".input_scale", {"l.alpha", "l.input_scale_inv"});
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4, law 6: input scales may stay away from a later complete update, nothing else", Executor, nvfp4_kept) {
  nvfp4_engine<Executor> tested({nvfp4_linear("l", {{"a", 16}, {"b", 16}}, 32), nvfp4_experts("x", 2, 16, 16)});
  const auto a = nvfp4_checkpoint(tested.layers(), 1), b = nvfp4_checkpoint(tested.layers(), 2);
  {
    update<Executor> first = tested.start();  // nothing is kept yet
    tested.send(first, named(a, ".input_scale", false));
    check_incomplete(tested, first, "a.input_scale");
    tested.send(first, named(a, ".input_scale"));
    must(first.finish());
  }
  for (const auto& [missing, value] : named(b, ".input_scale", false)) {
    update<Executor> open = tested.start();
    for (const auto& [name, other] : b)
      if (name != missing && !name.ends_with(".input_scale")) must(open.load(name, tested.place(other)));
    check_incomplete(tested, open, missing);
    must(open.load(missing, tested.place(value)));
    must(open.finish());
    tested.demand_cold(over(a, named(b, ".input_scale", false)));
  }
  {
    update<Executor> open = tested.start();  // written and taken back: the older value is gone
    must(open.load("a.input_scale", tested.place(b.at("a.input_scale"))));
    must(open.retract("a.input_scale"));
    tested.send(open, named(b, ".input_scale", false));
    check_incomplete(tested, open, "a.input_scale");
    must(open.load("a.input_scale", tested.place(a.at("a.input_scale"))));
    must(open.finish());
    tested.demand_cold(over(a, named(b, ".input_scale", false)));
  }
  // One that a failed update wrote has to come again; the other one not.
  update<Executor> torn = tested.start();
  must(torn.load("a.input_scale", tested.place(b.at("a.input_scale"))));
  must(torn.abort());
  CHECK(tested.model().state() == model_state::undefined);
  update<Executor> repair = tested.start();
  tested.send(repair, named(b, ".input_scale", false));
  check_incomplete(tested, repair, "a.input_scale");
  CHECK(repair.report().missing.size() == 1);
  must(repair.load("a.input_scale", tested.place(b.at("a.input_scale"))));
  must(repair.finish());
  tested.demand_cold(over(a, over(named(b, ".input_scale", false), {{"a.input_scale", b.at("a.input_scale")}})));
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: a NaN among the input scales reaches everything computed from them", Executor, nvfp4_nan) {
  nvfp4_engine<Executor> tested({nvfp4_linear("l", {{"a", 16}, {"b", 16}, {"c", 16}}, 32)});
  auto all = nvfp4_checkpoint(tested.layers(), 1);
  for (const char* module : {"a", "b", "c"}) {
    auto with = all;
    with[std::string(module) + ".input_scale"] = tensor_of<std::uint32_t>(dtype::fp32, {}, {0xFF812345});
    tested.reload(with);
    tested.demand_cold(with);
    std::uint32_t alpha = 0;
    std::memcpy(&alpha, tested.bytes("l.alpha").data(), 4);
    CHECK(alpha == 0x7FFFFFFF);
  }
  // Subnormals, signed zeros and infinities are ordered, too.
  for (const auto& [x, y, z] : std::vector<std::array<std::uint32_t, 3>>{
           {0x00000001, 0x00000002, 0x80000003}, {0x80000000, 0x00000000, 0x80000000}, {0x80000000, 0x80000001, 0x80000000},
           {0x7F800000, 0x7F7FFFFF, 0xFF800000}, {0xBF800000, 0xC0000000, 0xBF000000}}) {
    auto with = all;
    with["a.input_scale"] = tensor_of<std::uint32_t>(dtype::fp32, {}, {x});
    with["b.input_scale"] = tensor_of<std::uint32_t>(dtype::fp32, {}, {y});
    with["c.input_scale"] = tensor_of<std::uint32_t>(dtype::fp32, {}, {z});
    tested.reload(with);
    tested.demand_cold(with);
  }
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: expert-parallel ranks maximise over all experts' input scales, and hold replicas", Executor, nvfp4_ranks) {
  nv::layer rank0 = nvfp4_experts("x", 4, 16, 32), rank1 = rank0;
  rank0.experts_local = {0, 1, 0};  // one twice
  rank1.experts_local = {3, 2};
  const auto all = nvfp4_checkpoint({rank0}, 1);
  nvfp4_engine<Executor> first({rank0}), second({rank1});
  first.reload(all);  // the other rank's weights are accepted, and counted
  first.demand_cold(all);
  second.reload(all);
  second.demand_cold(all);
  CHECK(first.bytes("x.w13_input_scale_quant") == second.bytes("x.w13_input_scale_quant"));
  CHECK(first.bytes("x.w13_input_scale") == second.bytes("x.w13_input_scale"));

  nvfp4_engine<Executor> fresh({rank0});
  update<Executor> open = fresh.start();
  for (const auto& [name, value] : all) {
    const bool here = name.starts_with("x.0.") || name.starts_with("x.1.");
    if (here || (name.ends_with(".input_scale") && name != "x.3.up_proj.input_scale")) must(open.load(name, fresh.place(value)));
  }
  check_incomplete(fresh, open, "x.3.up_proj.input_scale");
  CHECK(open.report().missing.size() == 1);  // neither weights nor weight_scale_2 of the other rank's experts
  must(open.load("x.3.up_proj.input_scale", fresh.place(all.at("x.3.up_proj.input_scale"))));
  must(open.finish());
  fresh.demand_cold(all);
  CHECK(open.report().not_needed.tensors == 0);
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: two layers on the same checkpoint tensors, each in its own order", Executor, nvfp4_shared) {
  nvfp4_engine<Executor> tested({nvfp4_linear("prefill", {{"q", 96}, {"k", 40}}, 80), nvfp4_linear("decode", {{"q", 96}, {"k", 40}}, 80, nv::backend::trtllm)});
  for (const std::uint64_t seed : {1U, 2U, 1U}) {
    const auto all = nvfp4_checkpoint(tested.layers(), seed);
    tested.reload(all);
    tested.demand_cold(all);
  }
  const reference::checkpoint one = {{"k.weight_scale", nvfp4_checkpoint(tested.layers(), 3).at("k.weight_scale")}};
  tested.reload_partial(one);
  tested.demand_cold(over(nvfp4_checkpoint(tested.layers(), 1), one));
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: tensors in kernel order land whole, as they are, but for the pads", Executor, nvfp4_runtime) {
  for (const nv::backend to : {nv::backend::cutlass, nv::backend::trtllm}) {
    nvfp4_engine<Executor> tested({nvfp4_linear("l", {{"a", 96}, {"b", 104}}, 80, to)});
    const auto a = nvfp4_checkpoint(tested.layers(), 1), b = nvfp4_checkpoint(tested.layers(), 2);
    tested.reload(a);
    const nv::image cold = nv::cold_image(tested.layers(), b);
    const auto extents = [&](std::string_view name) {
      for (const param_record& param : tested.model().params())
        if (param.name() == name) return param.plan.extents;
      return shape{};
    };
    const auto tensor = [&](std::string_view name, dtype type) {
      const auto& bytes = cold.at(std::string(name));
      const placed_source at = tested.memory().place(bytes.data(), static_cast<std::int64_t>(bytes.size()));
      return tensor_ref{at.data, type, extents(name), {}, at.memory};
    };
    update<Executor> open = tested.start();
    const tensor_ref scale = tensor("l.weight_scale_interleaved", dtype::fp8_e4m3);
    tensor_ref half = scale;
    half.extents = {64, scale.extents[1]};
    const auto before = tested.image();
    check_refused(open.load("l.weight_scale_interleaved", half, {{0, 0}, half.extents}, load_form::runtime), error_code::unsupported, "l.weight_scale_interleaved");
    check_refused(open.load("l.weight_scale", scale, {}, load_form::runtime), error_code::unknown_name, "l.weight_scale");
    check_refused(open.load("l.alpha", tensor("l.alpha", dtype::fp32), {}, load_form::runtime), error_code::unknown_name, "l.alpha");
    CHECK(before == tested.image());
    must(open.load("l.weight_scale_interleaved", scale, {}, load_form::runtime));
    check_refused(open.load("a.weight_scale", tested.place(b.at("a.weight_scale"))), error_code::duplicate, "a.weight_scale");
    must(open.load("l.weight", tensor("l.weight", dtype::u8), {}, load_form::runtime));
    tested.send(open, named(named(b, ".weight", false), ".weight_scale", false));
    must(open.finish());
    tested.demand_cold(b);

    // A transport that writes storage itself: not where a map would be skipped; in kernel order by its runtime name.
    update<Executor> direct = tested.start();
    direct_landing where;
    check_refused(direct.landing("a.weight_scale", {}, dtype::fp8_e4m3, &where), error_code::unsupported, "a.weight_scale");
    const std::string_view mapped[] = {"a.weight_scale"}, runtime[] = {"l.weight_scale_interleaved"};
    check_refused(direct.adopt(mapped, load_form::checkpoint), error_code::unsupported, "a.weight_scale");
    const nv::image image_of_a = nv::cold_image(tested.layers(), a);
    const auto& scales = image_of_a.at("l.weight_scale_interleaved");
    tested.memory().write(tested.data("l.weight_scale_interleaved"), scales.data(), static_cast<std::int64_t>(scales.size()));
    must(direct.adopt(runtime, load_form::runtime));
    tested.send(direct, named(a, ".weight_scale", false));
    must(direct.finish());
    tested.demand_cold(a);
  }
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: pads stay zero whatever a kernel-order tensor brings for them", Executor, nvfp4_runtime_pads) {
  nvfp4_engine<Executor> tested({nvfp4_linear("l", {{"l", 200}}, 80)});
  const auto all = nvfp4_checkpoint(tested.layers(), 1);
  tested.reload(all);
  std::vector<std::byte> dirty(256 * 8, std::byte{0x77});
  update<Executor> open = tested.start();
  const placed_source at = tested.memory().place(dirty.data(), static_cast<std::int64_t>(dirty.size()));
  must(open.load("l.weight_scale_interleaved", {at.data, dtype::fp8_e4m3, {256, 8}, {}, at.memory}, {}, load_form::runtime));
  tested.send(open, named(all, ".weight_scale", false));
  must(open.finish());
  auto same = all;
  std::fill(same["l.weight_scale"].bytes.begin(), same["l.weight_scale"].bytes.end(), std::byte{0x77});
  tested.demand_cold(same);
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: pads of several layers that come in one batch go each where its layer goes", Executor,
                          nvfp4_batch_pads) {
  nvfp4_engine<Executor> tested({nvfp4_linear("l", {{"l", 200}}, 80), nvfp4_linear("m", {{"m", 100}}, 80)});
  const auto all = nvfp4_checkpoint(tested.layers(), 1);
  tested.reload(all);
  std::vector<std::byte> dirty(256 * 8, std::byte{0x77});
  start_options options = in_mode_under_test({});
  options.staging.or_direct = options.mode == update_mode::layerwise;
  if (options.staging.or_direct) options.staging.budget_bytes = 1100;  // one of the two finds no room
  update<Executor> open = tested.start(options);
  const placed_source l = tested.memory().place(dirty.data(), 256 * 8), m = tested.memory().place(dirty.data(), 128 * 8);
  const piece both[] = {
      {.name = "l.weight_scale_interleaved", .tensor = {l.data, dtype::fp8_e4m3, {256, 8}, {}, l.memory}, .form = load_form::runtime},
      {.name = "m.weight_scale_interleaved", .tensor = {m.data, dtype::fp8_e4m3, {128, 8}, {}, m.memory}, .form = load_form::runtime}};
  must(open.load(both));
  tested.send(open, named(all, ".weight_scale", false));
  must(open.finish());
  auto same = all;
  for (const char* name : {"l.weight_scale", "m.weight_scale"})
    std::fill(same[name].bytes.begin(), same[name].bytes.end(), std::byte{0x77});
  tested.demand_cold(same);
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: unequal weight_scale_2 of fused shards warns by name, and succeeds", Executor, nvfp4_warns) {
  nvfp4_engine<Executor> tested({nvfp4_linear("mlp.gate_up", {{"gate", 16}, {"up", 16}}, 32), nvfp4_linear("down", {{"down", 16}}, 32)});
  const auto equal = nvfp4_checkpoint(tested.layers(), 1), unequal = nvfp4_checkpoint(tested.layers(), 1, false);
  const auto warnings = [&](const reference::checkpoint& all) {
    update<Executor> open = tested.start();
    tested.send(open, all);
    must(open.finish());
    tested.demand_cold(all);
    return open.report().warnings;
  };
  CHECK(warnings(equal).empty());
  const auto told = warnings(unequal);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("mlp.gate_up.weight_scale_2") != std::string::npos);
  // One shard's scalar alone makes them differ, too; a partial update of something else says nothing.
  tested.reload(equal);
  const auto partial = [&](const reference::checkpoint& some) {
    const auto names = tested.names_of(some);
    update<Executor> open = tested.start({.scope = update_scope::partial(names)});
    tested.send(open, some);
    must(open.finish());
    return open.report().warnings.size();
  };
  CHECK(partial({{"up.weight_scale_2", tensor_of<float>(dtype::fp32, {}, {42.0F})}}) == 1);
  CHECK(partial({{"up.weight", equal.at("up.weight")}}) == 0);
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4, law 5: tensors of another layout are refused and write nothing", Executor, nvfp4_refuses) {
  nvfp4_engine<Executor> tested({nvfp4_linear("l", {{"l", 32}}, 64)});
  tested.reload(nvfp4_checkpoint(tested.layers(), 1));
  const auto before = tested.image();
  update<Executor> open = tested.start();
  noise random(5);
  const auto load = [&](const char* name, dtype type, const reference::dims& sizes) {
    return open.load(name, tested.place(random_tensor(type, sizes, false, random)));
  };
  check_refused(load("l.weight", dtype::u8, {32, 64}), error_code::wrong_shape, "l.weight");     // unpacked
  check_refused(load("l.weight", dtype::u8, {32, 31}), error_code::wrong_shape, "l.weight");     // an odd packed column count
  check_refused(load("l.weight", dtype::fp8_e4m3, {32, 32}), error_code::wrong_dtype, "l.weight");
  check_refused(load("l.weight", dtype::bf16, {32, 64}), error_code::wrong_dtype, "l.weight");
  check_refused(load("l.weight_scale", dtype::fp8_e4m3, {32, 2}), error_code::wrong_shape, "l.weight_scale");   // blocks of 32
  check_refused(load("l.weight_scale", dtype::fp8_e4m3, {128, 4}), error_code::wrong_shape, "l.weight_scale");  // swizzled already
  check_refused(load("l.weight_scale", dtype::fp8_e4m3, {1, 1}), error_code::wrong_shape, "l.weight_scale");
  check_refused(load("l.weight_scale", dtype::u8, {32, 4}), error_code::wrong_dtype, "l.weight_scale");
  check_refused(load("l.weight_scale", dtype::fp32, {32, 4}), error_code::wrong_dtype, "l.weight_scale");
  check_refused(load("l.weight_scale_2", dtype::fp32, {2}), error_code::wrong_shape, "l.weight_scale_2");
  check_refused(load("l.weight_scale_2", dtype::bf16, {}), error_code::wrong_dtype, "l.weight_scale_2");
  check_refused(load("l.weight_scale_interleaved", dtype::fp8_e4m3, {128, 4}), error_code::unknown_name, "l.weight_scale_interleaved");
  CHECK(before == tested.image());
  const auto all = nvfp4_checkpoint(tested.layers(), 2);
  tested.send(open, named(all, "_scale", false));
  must(open.load("l.weight_scale", tested.place(all.at("l.weight_scale"))));
  reference::tensor one = all.at("l.input_scale");
  one.sizes = {1};  // files store scalars as [] or [1]
  must(open.load("l.input_scale", tested.place(one)));
  check_refused(open.load("l.input_scale", tested.place(one)), error_code::duplicate, "l.input_scale");
  must(open.finish());
  tested.demand_cold(all);
}

/// A weight in kernel order under two names.
struct SwizzledTwin : ParamLayout<Param<tags::weight, StorageView<fp8_e4m3>, Map<PadToMultiple<128, 4>, ShuffleRows<32>, Swizzle128x4>,
                                        SameAs<tags::alternative>>> {};

TEST_CASE_TEMPLATE_DEFINE("maps: a second name is compared where it would land", Executor, nvfp4_twin) {
  property("equal pieces in any cut pass, one other byte is named", [] {
    const std::int64_t rows = draw_small(1, 140), cols = draw_small(1, 9);
    layout_engine<Executor> tested;
    tested.template add<SwizzledTwin>("l", extents::matrix("l", rows, cols));
    must(tested.model().seal());
    noise random(draw_seed());
    const reference::tensor value = random_tensor(dtype::fp8_e4m3, {rows, cols}, false, random);
    reference::tensor other = value;
    const bool differs = one_in(2);
    if (differs) other.bytes[static_cast<std::size_t>(draw(0, rows * cols - 1))] ^= std::byte{1};
    update<Executor> open = tested.start();
    send_delivery(tested, open, draw_delivery({{"l.weight", value}, {"l.alternative", other}}));
    const status refused = open.finish();
    demand(refused.code == (differs ? error_code::conflict : error_code::ok), refused.message());
    if (differs) return;
    nv::matrix plain(rows, cols);
    plain.bytes = value.bytes;
    demand(tested.bytes("l.weight") == nv::swizzled(nv::shuffled(nv::padded(plain, 128, 4))).bytes, "kernel order");
  });
}

/// Two halves, each padded by itself, interleaved and shuffled; FP8 is widened on its way there.
struct GatedHalves : ParamLayout<Param<tags::weight, StorageView<bf16>, Accepts<fp8_e4m3>, Map<PadToMultiple<32, 4>, GatedInterleave, ShuffleRows<32>>>> {};
struct SwappedHalves : ParamLayout<Param<tags::weight, StorageView<bf16>, Accepts<fp8_e4m3>, Map<PadToMultiple<32, 4>, SwapHalves>>> {};

TEST_CASE_TEMPLATE_DEFINE("maps: halves are padded by themselves, and elements widened, while landing", Executor, nvfp4_halves) {
  property("any rows and columns, any cut", [] {
    const std::int64_t half = draw_small(1, 70), cols = draw_small(1, 9);
    const bool swapped = one_in(2);
    const extents sizes{.shards = {{.module = "w1", .rows = half}, {.module = "w3", .rows = half}}, .inner = {cols}};
    layout_engine<Executor> tested;
    swapped ? tested.template add<SwappedHalves>("l", sizes) : tested.template add<GatedHalves>("l", sizes);
    must(tested.model().seal());
    noise random(draw_seed());
    for (int round = 0; round < 2; ++round) {
      reference::checkpoint all;
      const std::int64_t padded = nv::round_up(half, 32), width = nv::round_up(cols, 4);
      nv::matrix plain(2 * padded, 2 * width);
      for (const std::int64_t h : {0, 1}) {
        const dtype type = one_in(2) ? dtype::fp8_e4m3 : dtype::bf16;
        const auto& value = all[h == 0 ? "w1.weight" : "w3.weight"] = random_tensor(type, {half, cols}, false, random);
        const std::int64_t first = (swapped ? 1 - h : h) * padded;
        for (std::int64_t r = 0; r < half; ++r)
          for (std::int64_t c = 0; c < cols; ++c) {
            const std::uint32_t code = reference::code_at(value, r * cols + c);
            const std::uint32_t wide = type == dtype::bf16 ? code : reference::widened(type, code, dtype::bf16);
            std::memcpy(&plain.at(first + r, 2 * c), &wide, 2);
          }
      }
      update<Executor> open = tested.start();
      send_delivery(tested, open, draw_delivery(all));
      must(open.finish());
      demand(tested.bytes("l.weight") == (swapped ? plain : nv::gated(plain)).bytes, "kernel order");
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4, law 7: a failed computation leaves the model undefined until a repair", Executor, nvfp4_execution) {
  using failing = failing_executor<Executor>;
  nvfp4_engine<failing> tested({nvfp4_linear("l", {{"l", 32}}, 64)});
  const auto a = nvfp4_checkpoint(tested.layers(), 1), b = nvfp4_checkpoint(tested.layers(), 2);
  tested.reload(a);
  update<failing> open = tested.start();
  tested.send(open, b);
  tested.model().executor().combines_left = 0;
  const status failed = open.finish();
  CHECK(failed.code == error_code::execution_failed);
  CHECK(failed.wrote_anything);
  CHECK(open.finish().code == error_code::execution_failed);
  must(open.abort());
  CHECK(tested.model().state() == model_state::undefined);
  tested.reload(b);
  tested.demand_cold(b);
}

TEST_CASE_TEMPLATE_DEFINE("NVFP4: digests of kernel-order tensors add up over cuts and back ends", Executor, nvfp4_digest) {
  const nv::layer whole = nvfp4_linear("l", {{"a", 96}, {"b", 104}}, 160);
  const auto all = nvfp4_checkpoint({whole}, 1);
  const auto sums_of = [&](const nv::layer& of) {
    nvfp4_engine<Executor> tested({of});
    tested.reload(all);
    digest_list list;
    must(tested.model().digests(&list));
    std::map<std::string, std::uint64_t> sums;
    for (const tile_digest& tile : list)
      if (tile.source.ends_with("weight") || tile.source.ends_with("weight_scale")) sums[tile.source] += tile.sum;
    return sums;
  };
  const auto expected = sums_of(whole);
  CHECK(expected.size() == 4);
  for (const nv::backend to : {nv::backend::cutlass, nv::backend::trtllm})
    for (const reference::cut split : {reference::cut::column, reference::cut::row}) {
      std::map<std::string, std::uint64_t> sums;
      for (int rank = 0; rank < 2; ++rank) {
        nv::layer part = whole;
        part.to = to, part.split = split, part.tp_size = 2, part.tp_rank = rank;
        for (const auto& [name, sum] : sums_of(part)) sums[name] += sum;
      }
      CHECK(sums == expected);
    }
}

}  // namespace wreload::test
