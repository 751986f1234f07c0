#pragma once
/// Law 6: `finish` succeeds only if everything this rank needs of the declared scope has arrived exactly once, and names
/// what has not.

#include "../property.hpp"
#include "closed_checks.hpp"
#include "generators.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_DEFINE("law 6: any one tensor missing is named, and completes the update when it comes", Executor,
                          closed_each_missing) {
  engine<Executor> tested(small_model());
  tested.reload(random_checkpoint(tested.layers(), 1));  // older values are in memory: they do not count
  const auto all = random_checkpoint(tested.layers(), 2);
  for (const auto& [missing, tensor] : all) {
    update<Executor> open = tested.start();
    for (const auto& [name, value] : all)
      if (name != missing) must(open.load(name, tested.place(value)));
    const auto before = tested.image();
    check_incomplete(tested, open, missing);
    CHECK(open.report().missing.size() == 1);
    CHECK(before == tested.image());
    check_incomplete(tested, open, missing);  // asking again changes nothing
    must(open.load(missing, tested.place(tensor)));
    must(open.finish());
    tested.demand_cold(all);
  }
}

TEST_CASE_TEMPLATE_DEFINE("law 6: any one piece missing is noticed", Executor, closed_piece_missing) {
  property("by boxes, never by counting", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers);
    const auto old = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    tested.reload(old);
    const auto all = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    std::vector<parcel> delivery = draw_delivery(all);
    const auto last = delivery.back();
    delivery.pop_back();
    update<Executor> open = tested.start();
    send_delivery(tested, open, delivery);
    const report before = open.report();
    const auto image = tested.image();
    const status refused = open.prepare();
    const placed_source at = tested.memory().place(last.bytes.data(), static_cast<std::int64_t>(last.bytes.size()));
    const tensor_ref tensor{at.data, last.type, last.extents, last.strides, at.memory};
    if (refused.ok()) {  // then this rank needed nothing of it
      must(open.finish());
    } else {
      demand(refused.code == error_code::incomplete && image == tested.image(), refused.message());
      must(open.load(last.name, tensor, last.part));
      demand(open.report().not_needed.bytes == before.not_needed.bytes, "the missing piece was not needed");
      must(open.finish());
    }
    tested.demand_cold(all);
  });
}

TEST_CASE_TEMPLATE_DEFINE("left twice, right never", Executor, closed_left_twice) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 2);
  update<Executor> open = tested.start();
  for (const auto& [name, value] : all)
    if (name != "o_proj.weight") must(open.load(name, tested.place(value)));
  const parcel left = pack("o_proj.weight", all.at("o_proj.weight"), {0, 0}, {6, 3}, 0);
  const tensor_ref tensor = tested.place({left.type, {6, 3}, left.bytes});
  must(open.load(left.name, tensor, left.part));
  check_refused(open.load(left.name, tensor, left.part), error_code::duplicate, "o_proj.weight");
  check_incomplete(tested, open, "o_proj.weight");
  CHECK(open.report().missing[0].find("cols 3..7") != std::string::npos);
  const parcel right = pack("o_proj.weight", all.at("o_proj.weight"), {0, 3}, {6, 4}, 0);
  must(open.load(right.name, tested.place({right.type, {6, 4}, right.bytes}), right.part));
  must(open.finish());
  tested.demand_cold(all);
}

TEST_CASE_TEMPLATE_DEFINE("an FP8 row whose scale did not come is refused, although an older scale is in memory",
                          Executor, closed_old_scale) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  update<Executor> open = tested.start();
  for (const auto& [name, value] : b)
    if (name != "q.weight_scale_inv" && name != "kv.weight_scale_inv") must(open.load(name, tested.place(value)));
  // The scale of rows 2..3 of kv only: rows 0..1 have none.
  const parcel half = pack("kv.weight_scale_inv", b.at("kv.weight_scale_inv"), {1, 0}, {1, 3}, 0);
  must(open.load(half.name, tested.place({half.type, {1, 3}, half.bytes}), half.part));
  check_incomplete(tested, open, "q.weight_scale_inv");
  check_incomplete(tested, open, "kv.weight_scale_inv");
  must(tested.send(open, b, "q.weight_scale_inv"));
  check_incomplete(tested, open, "kv.weight_scale_inv (rows 0..1");
  const parcel rest = pack("kv.weight_scale_inv", b.at("kv.weight_scale_inv"), {0, 0}, {1, 3}, 0);
  must(open.load(rest.name, tested.place({rest.type, {1, 3}, rest.bytes}), rest.part));
  must(open.finish());
  tested.demand_cold(b);

  // The same in a partial update: the declared weight alone cannot finish, whatever is in memory.
  const std::vector<std::string_view> weight = {"q.weight"};
  update<Executor> alone = tested.start_partial(weight);
  must(tested.send(alone, a, "q.weight"));
  check_incomplete(tested, alone, "q.weight_scale_inv");
  check_refused(tested.send(alone, a, "q.weight_scale_inv"), error_code::out_of_scope);
}

TEST_CASE_TEMPLATE_DEFINE("a scale alone is refused, beside a BF16 weight it is accepted", Executor,
                          closed_scale_alone) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto bf16 = random_checkpoint(tested.layers(), 2, stored_as::bf16);
  tested.reload(a);
  const std::vector<std::string_view> scale = {"kv.weight_scale_inv"};
  {
    update<Executor> open = tested.start_partial(scale);
    must(tested.send(open, a, "kv.weight_scale_inv"));
    check_incomplete(tested, open, "kv.weight");
  }
  tested.reload(a);
  const std::vector<std::string_view> both = {"kv.weight", "kv.weight_scale_inv"};
  update<Executor> open = tested.start_partial(both);
  must(tested.send(open, a, "kv.weight_scale_inv"));
  check_incomplete(tested, open, "kv.weight");
  must(tested.send(open, bf16, "kv.weight"));
  must(open.finish());
  CHECK(open.report().converted_rows == 0);
  tested.demand_cold(reference::overlay(a, {{"kv.weight", bf16.at("kv.weight")}}));
  // Declared, and not even sent: the weight is BF16.
  update<Executor> unsent = tested.start_partial(both);
  must(tested.send(unsent, bf16, "kv.weight"));
  must(unsent.finish());
  CHECK(unsent.report().not_sent == 1);
  // A complete update with BF16 weights and every scale of before: strays, not errors.
  update<Executor> strays = tested.start();
  must(tested.send(strays, bf16));
  for (const char* name : {"q.weight_scale_inv", "kv.weight_scale_inv", "o_proj.weight_scale_inv"})
    must(tested.send(strays, a, name));
  must(strays.finish());
  tested.demand_cold(bf16);
}

TEST_CASE_TEMPLATE_DEFINE("rows of one weight in two formats: each row whole, FP8 rows with their own scale blocks",
                          Executor, closed_mixed_rows) {
  engine<Executor> tested({linear("o_proj", 6, 7)});  // scale blocks of 2 rows
  const auto fp8 = random_checkpoint(tested.layers(), 1);
  const auto bf16 = random_checkpoint(tested.layers(), 2, stored_as::bf16);
  update<Executor> open = tested.start();
  const auto load_part = [&](const reference::checkpoint& from, const char* name, const shape& offset,
                             const shape& size) {
    const parcel cut = pack(name, from.at(name), offset, size, 0);
    return open.load(name, tested.place({cut.type, {size[0], size[1]}, cut.bytes}), cut.part);
  };
  must(load_part(fp8, "o_proj.weight", {1, 0}, {3, 7}));  // rows 1..3: blocks 0 and 1
  must(load_part(bf16, "o_proj.weight", {4, 0}, {2, 7}));
  check_refused(load_part(bf16, "o_proj.weight", {3, 0}, {1, 7}), error_code::duplicate);
  must(load_part(bf16, "o_proj.weight", {0, 0}, {1, 7}));
  check_incomplete(tested, open, "o_proj.weight_scale_inv");
  must(load_part(fp8, "o_proj.weight_scale_inv", {1, 0}, {1, 3}));
  check_incomplete(tested, open, "o_proj.weight_scale_inv");
  must(load_part(fp8, "o_proj.weight_scale_inv", {0, 0}, {1, 3}));
  must(open.finish());  // block 2 scales no FP8 row
  CHECK(open.report().converted_rows == 3);
  const auto converted = reference::cold_bytes(tested.tensors()[0].plan, fp8);
  const auto copied = reference::cold_bytes(tested.tensors()[0].plan, bf16);
  const auto found = tested.dense("o_proj.weight");
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == (i / 14 >= 1 && i / 14 < 4 ? converted[i] : copied[i]));
}

TEST_CASE_TEMPLATE_DEFINE("a partial scope by names, prefix or predicate is exactly what it says", Executor,
                          closed_scopes) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  const std::vector<std::string_view> names = {"q.weight", "q.weight_scale_inv"};
  const auto predicate = [](std::string_view name, void*) {
    return name == "q.weight" || name == "q.weight_scale_inv";
  };
  update_scope by_predicate{.is_complete = false};
  by_predicate.predicate = predicate;
  for (const update_scope& scope : {update_scope::partial(names), update_scope::under("q."), by_predicate}) {
    tested.reload(a);
    update<Executor> open = tested.start({.scope = scope});
    check_refused(tested.send(open, b, "kv.weight"), error_code::out_of_scope, "kv.weight");
    check_incomplete(tested, open, "q.weight");
    CHECK(open.report().missing.size() == 1);  // the weight; the scale is asked for once FP8 rows are there
    must(tested.send(open, b, "q.weight_scale_inv"));
    must(tested.send(open, b, "q.weight"));
    must(open.finish());
    tested.demand_cold(
        reference::overlay(a, {{"q.weight", b.at("q.weight")}, {"q.weight_scale_inv", b.at("q.weight_scale_inv")}}));
  }
  // Declared under its other spelling, sent under either.
  const std::vector<std::string_view> quark = {"q.weight", "q.weight_scale"};
  update<Executor> open = tested.start_partial(quark);
  must(tested.send(open, a, "q.weight"));
  must(tested.send(open, a, "q.weight_scale_inv"));
  must(open.finish());
  tested.demand_cold(a);
}

TEST_CASE_TEMPLATE_DEFINE("an update that leaves weights out lists them all", Executor, closed_lists) {
  std::vector<reference::layer> layers;
  for (int i = 0; i < 100; ++i) layers.push_back(plain("t" + std::to_string(i), {2}));
  engine<Executor> tested(layers);
  const auto all = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  for (int i = 0; i < 100; i += 3) must(tested.send(open, all, "t" + std::to_string(i)));
  const status refused = open.finish();
  check_refused(refused, error_code::incomplete, "t1:");
  CHECK(refused.message().find("65 more") != std::string::npos);
  CHECK(open.report().missing.size() == 64);
  for (int i = 0; i < 100; ++i)
    if (i % 3 != 0) must(tested.send(open, all, "t" + std::to_string(i)));
  must(open.finish());
  CHECK(open.report().missing.empty());
  tested.demand_cold(all);
}

TEST_CASE_TEMPLATE_DEFINE("Kept: a later complete update may leave the value out, the first may not", Executor,
                          closed_kept) {
  layout_engine<Executor> tested;
  tested.template add<KeptScale>("layer", vector_of("m", 3));
  must(tested.model().seal());
  const auto value = floats(3, 1.5F);
  {
    update<Executor> first = tested.start();
    must(first.load("m.weight", tested.place(halves(3, 0x4000))));
    check_incomplete(tested, first, "m.input_scale");
    must(first.load("m.input_scale", tested.place(value)));
    must(first.finish());
  }
  {
    update<Executor> later = tested.start();
    must(later.load("m.weight", tested.place(halves(3, 0x4080))));
    must(later.finish());
    CHECK(later.report().not_sent == 1);
    CHECK(tested.bytes("layer.input_scale") == value.bytes);
  }
  {  // half of it does not do
    update<Executor> half = tested.start();
    must(half.load("m.weight", tested.place(halves(3, 0x4000))));
    must(half.load("m.input_scale", tested.place(floats(1, 9.0F)), {{0}, {1}}));
    check_incomplete(tested, half, "m.input_scale");
    must(half.load("m.input_scale", tested.place(floats(2, 9.0F)), {{1}, {2}}));
    must(half.finish());
  }
  {  // declared in a partial update, it has to come
    const std::vector<std::string_view> names = {"m.input_scale"};
    update<Executor> declared = tested.start({.scope = update_scope::partial(names)});
    check_incomplete(tested, declared, "m.input_scale");
    must(declared.load("m.input_scale", tested.place(value)));
    must(declared.finish());
  }
  CHECK(tested.bytes("layer.input_scale") == value.bytes);
}

TEST_CASE_TEMPLATE_DEFINE("an aborted update whose Kept value must not serve", Executor, closed_kept_aborted) {
  layout_engine<Executor> tested;
  tested.template add<KeptScale>("layer", vector_of("m", 3));
  must(tested.model().seal());
  const auto good = floats(3, 1.5F);
  const auto load_weight = [&](update<Executor>& to) { must(to.load("m.weight", tested.place(halves(3, 0x4000)))); };
  {
    update<Executor> first = tested.start();
    load_weight(first);
    must(first.load("m.input_scale", tested.place(good)));
    must(first.finish());
  }
  {
    update<Executor> failed = tested.start();
    must(failed.load("m.input_scale", tested.place(floats(3, 99.0F))));
    must(failed.abort());
  }
  {
    update<Executor> repair = tested.start();
    load_weight(repair);
    check_incomplete(tested, repair, "m.input_scale");
    must(repair.abort());
  }
  {  // the failed repair did not write it either: still required
    update<Executor> repair = tested.start();
    load_weight(repair);
    check_incomplete(tested, repair, "m.input_scale");
    must(repair.load("m.input_scale", tested.place(good)));
    must(repair.finish());
  }
  {  // a failure that did not write it leaves it valid
    update<Executor> failed = tested.start();
    load_weight(failed);
    must(failed.abort());
    update<Executor> repair = tested.start();
    load_weight(repair);
    must(repair.finish());
    CHECK(tested.bytes("layer.input_scale") == good.bytes);
  }
}

TEST_CASE_TEMPLATE_DEFINE("a Kept value that was sent and taken back is required again", Executor,
                          closed_kept_retract) {
  layout_engine<Executor> tested;
  tested.template add<KeptScale>("layer", vector_of("m", 3));
  must(tested.model().seal());
  const auto good = floats(3, 1.5F);
  for (int round = 0; round < 2; ++round) {
    update<Executor> open = tested.start();
    must(open.load("m.weight", tested.place(halves(3, 0x4000))));
    must(open.load("m.input_scale", tested.place(round == 0 ? good : floats(3, 99.0F))));
    if (round == 1) {
      must(open.retract("m.input_scale"));
      check_incomplete(tested, open, "m.input_scale");  // 99 lies in memory, not the last successful value
      must(open.load("m.input_scale", tested.place(good)));
    }
    must(open.finish());
    CHECK(tested.bytes("layer.input_scale") == good.bytes);
  }
}

TEST_CASE_TEMPLATE_DEFINE("a Kept value that a failed update wrote under its second name must not serve", Executor,
                          closed_kept_twin) {
  layout_engine<Executor> tested;
  tested.template add<KeptTwin>("layer", vector_of("m", 3));
  must(tested.model().seal());
  const auto load_weight = [&](update<Executor>& to) { must(to.load("m.weight", tested.place(halves(3, 0x4000)))); };
  for (const char* first_name : {"m.input_scale", "m.alternative"})
    for (const char* second_name : {"m.input_scale", "m.alternative"}) {
      update<Executor> first = tested.start();
      load_weight(first);
      must(first.load(first_name, tested.place(floats(3, 1.5F))));
      must(first.finish());
      update<Executor> without = tested.start();
      load_weight(without);
      must(without.finish());
      update<Executor> failed = tested.start();
      must(failed.load(second_name, tested.place(floats(3, 99.0F))));
      must(failed.abort());
      update<Executor> repair = tested.start();
      load_weight(repair);
      check_refused(repair.finish(), error_code::incomplete, "m.");
      must(repair.abort());
    }
}

TEST_CASE_TEMPLATE_DEFINE("runtime-format loads complete what lands only there", Executor, closed_runtime) {
  engine<Executor> tested(small_model(), 1);
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  update<Executor> open = tested.start();
  const auto& qkv = tested.tensor("qkv.weight");
  const reference::tensor cache{dtype::bf16, {9, 7}, reference::cold_bytes(qkv.plan, b)};
  must(open.load("qkv.weight", tested.place(cache), {}, load_form::runtime));
  check_refused(tested.send(open, b, "q.weight"), error_code::duplicate, "q.weight");
  check_incomplete(tested, open, "o_proj.weight");
  must(tested.send(open, b, "q.weight_scale_inv"));  // a stray
  for (const char* name : {"o_proj.weight", "o_proj.weight_scale_inv", "norm.weight", "bias"})
    must(tested.send(open, b, name));
  check_incomplete(tested, open, "step");
  must(open.load("step", tested.place(b.at("step")), {}, load_form::runtime));
  must(open.finish());
  tested.demand_cold(b);
  // Rows of one shard only: the other shard is still to come.
  update<Executor> rows = tested.start();
  const parcel part = pack("qkv.weight", cache, {0, 0}, {5, 7}, 0);
  must(rows.load("qkv.weight", tested.place({dtype::bf16, {5, 7}, part.bytes}), part.part, load_form::runtime));
  for (const auto& [name, value] : b)
    if (!name.starts_with("q.") && !name.starts_with("kv.")) must(rows.load(name, tested.place(value)));
  check_incomplete(tested, rows, "kv.weight");
  must(tested.send(rows, a, "kv.weight"));
  must(tested.send(rows, a, "kv.weight_scale_inv"));
  must(rows.finish());
  auto logical = b;
  logical["kv.weight"] = a.at("kv.weight");
  logical["kv.weight_scale_inv"] = a.at("kv.weight_scale_inv");
  tested.demand_cold(logical);
}

TEST_CASE_TEMPLATE_DEFINE("landing() and adopt(): a transport writes in place", Executor, closed_landing) {
  engine<Executor> tested(small_model(), 1);
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  update<Executor> open = tested.start();
  const auto write_in_place = [&](const char* name) {
    const reference::tensor& from = b.at(name);
    direct_landing where;
    must(open.landing(name, {}, from.type, &where));
    CHECK(where.type == from.type);
    const std::int64_t row_bytes = where.cols * bytes_of(where.type);
    CHECK(where.rows * row_bytes == static_cast<std::int64_t>(from.bytes.size()));
    for (std::int64_t r = 0; r < where.rows; ++r)
      tested.memory().write(where.data + r * where.row_stride_bytes, from.bytes.data() + r * row_bytes, row_bytes);
  };
  for (const char* name : {"q.weight", "norm.weight", "q.weight_scale_inv", "step"}) write_in_place(name);
  direct_landing where;
  check_refused(open.landing("bias", {}, dtype::bf16, &where), error_code::unsupported, "bias");  // widened
  check_refused(open.landing("bias", {}, dtype::fp16, &where), error_code::wrong_dtype, "bias");
  check_refused(open.landing("nobody", {}, dtype::fp16, &where), error_code::unknown_name, "nobody");
  check_refused(open.landing("kv.weight", {{3, 0}, {2, 7}}, dtype::fp8_e4m3, &where), error_code::wrong_shape);
  // Asked for, but not adopted: nothing has arrived.
  for (const char* name : {"kv.weight", "kv.weight_scale_inv", "o_proj.weight", "o_proj.weight_scale_inv", "bias"})
    must(tested.send(open, b, name));
  check_incomplete(tested, open, "q.weight");
  const std::vector<std::string_view> wrong = {"q.weight", "nobody"};
  check_refused(open.adopt(wrong, load_form::checkpoint), error_code::unknown_name, "nobody");
  check_incomplete(tested, open, "q.weight");
  const std::vector<std::string_view> names = {"q.weight", "norm.weight", "q.weight_scale_inv", "step"};
  must(open.adopt(names, load_form::checkpoint));
  check_refused(open.adopt(names, load_form::checkpoint), error_code::duplicate, "q.weight");
  check_refused(tested.send(open, b, "norm.weight"), error_code::duplicate, "norm.weight");
  check_refused(open.landing("norm.weight", {}, dtype::bf16, &where), error_code::duplicate, "norm.weight");
  must(open.finish());
  CHECK(open.report().converted_rows == 15);  // adopted FP8 rows too
  tested.demand_cold(b);

  // Part of a tensor, and runtime names.
  update<Executor> second = tested.start();
  must(second.landing("o_proj.weight", {{2, 0}, {3, 7}}, dtype::bf16, &where));
  CHECK(where.rows == 3);
  CHECK((where.data == tested.tensor("o_proj.weight").data + 2 * tested.tensor("o_proj.weight").row_stride_bytes));
  for (const auto& each : tested.tensors()) {
    if (each.plan.retired) continue;
    const auto bytes = reference::cold_bytes(each.plan, a);
    for (std::int64_t r = 0; r < each.plan.rows; ++r)
      tested.memory().write(each.data + r * each.row_stride_bytes, bytes.data() + r * each.row_bytes, each.row_bytes);
  }
  const std::vector<std::string_view> runtime = {"qkv.weight", "o_proj.weight", "norm.weight", "bias", "step"};
  must(second.adopt(runtime, load_form::runtime));
  must(second.finish());
  tested.demand_cold(a);

  // landing() alone counts as a write: the caller may have used it.
  update<Executor> third = tested.start();
  must(third.landing("norm.weight", {}, dtype::bf16, &where));
  must(third.abort());
  CHECK(tested.model().state() == model_state::undefined);
}

}  // namespace wreload::test
