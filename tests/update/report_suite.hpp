#pragma once
/// The report of an update, and law 10 through the whole library.

#include "../property.hpp"
#include "generators.hpp"
#include "layout_engine.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_DEFINE("report: counts and bytes per dtype, each name once however many pieces", Executor,
                          report_counts) {
  engine<Executor> tested(small_model(), 0, [](wr::model<Executor>& model) { model.ignore("*.inv_freq"); });
  const auto all = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  for (std::int64_t row = 0; row < 5; ++row) {
    const parcel part = pack("q.weight", all.at("q.weight"), {row, 0}, {1, 7}, 0);
    must(open.load("q.weight", tested.place({part.type, {1, 7}, part.bytes}), part.part));
  }
  for (const auto& [name, value] : all)
    if (name != "q.weight") must(open.load(name, tested.place(value)));
  must(open.load("x.inv_freq", tested.place(halves(4, 0))));
  must(open.finish());
  const report& told = open.report();
  std::array<load_count, dtype_count> expected = {};
  load_count total;
  for (const auto& [name, value] : all) {
    for (load_count* count : {&expected[static_cast<std::size_t>(value.type)], &total}) {
      ++count->tensors;
      count->bytes += static_cast<std::int64_t>(value.bytes.size());
    }
  }
  CHECK(told.loaded.tensors == total.tensors);
  CHECK(told.loaded.bytes == total.bytes);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(told.by_dtype[i].tensors == expected[i].tensors);
    CHECK(told.by_dtype[i].bytes == expected[i].bytes);
  }
  CHECK(told.version == 1);
  CHECK(told.converted_rows == 15);
  CHECK(told.not_sent == 0);
  CHECK(told.not_needed.tensors == 0);
  CHECK(told.ignored.tensors == 1);
  CHECK(told.ignored.bytes == 8);
  CHECK(told.foreign.tensors == 0);
  CHECK(told.missing.empty());
  CHECK(told.first_error.ok());
  CHECK(told.launches > 0);
  CHECK(told.peak_extra_device_bytes == 0);
  CHECK(!told.changed.has_value());  // not asked for
  CHECK(told.seconds.load > 0);
  CHECK(told.gb_per_s() > 0);
}

TEST_CASE_TEMPLATE_DEFINE("report: what this rank does not need is a success, and counted", Executor,
                          report_not_needed) {
  reference::layer experts{.what = reference::kind::moe,
                           .name = "experts",
                           .block_rows = 2,
                           .block_cols = 3,
                           .experts_total = 4,
                           .experts_local = {1, 3}};
  for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
    experts.shards.push_back(whole_shard(module, 4));
    experts.shards.back().cols = 4;
  }
  reference::layer head = plain("head", {8, 2});
  head.shards[0].split = reference::cut::column;
  head.tp_size = 2;
  head.tp_rank = 1;
  engine<Executor> tested({experts, head});
  const auto all = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  for (const auto& [name, value] : all)
    if (name != "head") must(open.load(name, tested.place(value)));
  const report half = open.report();
  CHECK(half.not_needed.tensors == 2 * 6);  // two experts, three weights, three scales
  CHECK(half.not_needed.bytes == 2 * 3 * (16 + 16));
  must(tested.send(open, all, "head"));  // half of it is needed: not counted
  must(open.finish());
  CHECK(open.report().not_needed.tensors == 2 * 6);
  CHECK(open.report().loaded.tensors == static_cast<std::int64_t>(all.size()));
  CHECK(open.report().not_sent == 0);
  // Left out altogether: foreign experts are not missing.
  update<Executor> lean = tested.start();
  for (const auto& [name, value] : all)
    if (!name.starts_with("experts.0.") && !name.starts_with("experts.2.")) must(lean.load(name, tested.place(value)));
  must(lean.finish());
  tested.demand_cold(all);
  // In pieces: the bytes of the piece that another rank needs.
  for (const std::int64_t first : {0, 1}) {
    update<Executor> pieces = tested.start();
    for (const std::int64_t at : {first, 1 - first}) {
      const parcel part = pack("head", all.at("head"), {at * 4, 0}, {4, 2}, 0);
      must(pieces.load("head", tested.place({part.type, {4, 2}, part.bytes}), part.part));
    }
    CHECK(pieces.report().not_needed.bytes == 16);
  }
}

TEST_CASE_TEMPLATE_DEFINE("report: tensors that did not have to come", Executor, report_not_sent) {
  engine<Executor> tested(small_model());
  update<Executor> open = tested.start();
  must(tested.send(open, random_checkpoint(tested.layers(), 1, stored_as::bf16)));
  must(open.finish());
  CHECK(open.report().not_sent == 3);  // the scales of three BF16 weights
  CHECK(open.report().converted_rows == 0);
}

TEST_CASE_TEMPLATE_DEFINE("report: changed or not", Executor, report_changed) {
  engine<Executor> tested(small_model());
  auto all = random_checkpoint(tested.layers(), 1);
  const auto changed = [&](bool ask) {
    update<Executor> open = tested.start({.detect_changes = ask});
    must(tested.send(open, all));
    must(open.finish());
    return open.report().changed;
  };
  CHECK(!changed(true).has_value());  // nothing to compare with yet
  CHECK(changed(true) == false);
  for (const char* name : {"q.weight", "bias", "step", "norm.weight", "kv.weight_scale_inv"}) {
    auto& bytes = all.at(name).bytes;
    bytes[bytes.size() - 1] ^= std::byte{0x40};
    CHECK(changed(true) == true);
    CHECK(changed(true) == false);
  }
  CHECK(!changed(false).has_value());
  CHECK(!changed(true).has_value());  // the version in between was not digested
  CHECK(changed(true) == false);
  // The same values as BF16: no byte that kernels read differs.
  for (const auto& each : tested.tensors())
    if (each.plan.name == "o_proj.weight")
      all["o_proj.weight"] = {dtype::bf16, {6, 7}, reference::cold_bytes(each.plan, all)};
  all.erase("o_proj.weight_scale_inv");
  CHECK(changed(true) == false);
}

TEST_CASE_TEMPLATE_DEFINE("report: retract and a runtime-form load are counted like any other", Executor,
                          report_other_loads) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  const reference::tensor cache{dtype::bf16, {9, 7}, reference::cold_bytes(tested.tensor("qkv.weight").plan, all)};
  must(open.load("qkv.weight", tested.place(cache), {}, load_form::runtime));
  CHECK(open.report().loaded.tensors == 1);
  CHECK(open.report().loaded.bytes == 126);
  CHECK(open.report().by_dtype[static_cast<std::size_t>(dtype::bf16)].bytes == 126);
  direct_landing where;
  must(open.landing("norm.weight", {}, dtype::bf16, &where));
  tested.memory().write(where.data, all.at("norm.weight").bytes.data(), 14);
  const std::vector<std::string_view> names = {"norm.weight"};
  must(open.adopt(names, load_form::checkpoint));
  CHECK(open.report().loaded.tensors == 2);
  CHECK(open.report().loaded.bytes == 140);
  for (const char* name : {"o_proj.weight", "o_proj.weight_scale_inv", "bias", "step"})
    must(tested.send(open, all, name));
  must(open.finish());
  tested.demand_cold(all);
}

/// Law 10 through a whole update: every code times these scales, one column a scale.
struct AllCodes
    : ParamLayout<Param<names::weight, StorageView<fp8_e4m3, Over<bf16>>, ScaledBy<names::weight_scale_inv>>,
                  Param<names::weight_scale_inv, BlockScale<256, 1, fp32>, Retired, Accepts<bf16, fp8_ue8m0>>> {};
struct AllCodesE5m2Fp32
    : ParamLayout<Param<names::weight, StorageView<fp8_e5m2, Over<fp32>>, ScaledBy<names::weight_scale_inv>>,
                  Param<names::weight_scale_inv, BlockScale<256, 1, fp32>, Retired, Accepts<bf16, fp8_ue8m0>>> {};
struct AllCodesFp16
    : ParamLayout<Param<names::weight, StorageView<fp8_e4m3, Over<fp16>>, ScaledBy<names::weight_scale_inv>>,
                  Param<names::weight_scale_inv, BlockScale<256, 1, fp32>, Retired, Accepts<bf16, fp8_ue8m0>>> {};

template <class Executor, class Layout>
void check_all_codes(dtype stored, dtype runtime, dtype scale_type) {
  std::vector<std::uint32_t> scales(std::begin(edge_scales), std::end(edge_scales));
  noise random(7);
  for (int i = 0; i < 100; ++i) scales.push_back(static_cast<std::uint32_t>(random.next()));
  if (scale_type == dtype::bf16)
    for (std::uint32_t& scale : scales) scale >>= 16;
  if (scale_type == dtype::fp8_ue8m0) {
    scales.clear();
    for (std::uint32_t code = 0; code < 256; ++code) scales.push_back(code);
  }
  const auto cols = static_cast<std::int64_t>(scales.size());
  const auto scale_bytes = static_cast<std::size_t>(bytes_of(scale_type));
  reference::tensor weight{stored, {256, cols}, {}}, scale{scale_type, {1, cols}, {}};
  for (int code = 0; code < 256; ++code)
    weight.bytes.insert(weight.bytes.end(), scales.size(), static_cast<std::byte>(code));
  for (const std::uint32_t value : scales) {
    scale.bytes.resize(scale.bytes.size() + scale_bytes);
    std::memcpy(scale.bytes.data() + scale.bytes.size() - scale_bytes, &value, scale_bytes);
  }
  layout_engine<Executor> tested;
  tested.template add<Layout>("x", extents::matrix("x", 256, cols));
  must(tested.model().seal());
  update<Executor> open = tested.start();
  must(open.load("x.weight", tested.place(weight)));
  must(open.load("x.weight_scale_inv", tested.place(scale)));
  must(open.finish());
  const auto found = tested.bytes("x.weight");
  const auto element = static_cast<std::size_t>(bytes_of(runtime));
  std::int64_t wrong = 0;
  for (std::uint32_t code = 0; code < 256; ++code)
    for (std::size_t c = 0; c < scales.size(); ++c) {
      // The storage holds scales as fp32: widened exactly, which does not change the product.
      const std::uint32_t expected = reference::dequantise(stored, code, scale_type, scales[c], runtime);
      std::uint32_t got = 0;
      std::memcpy(&got, found.data() + (code * scales.size() + c) * element, element);
      if (got != expected && wrong++ == 0)
        FAIL_CHECK("code " << code << ", scale " << scales[c] << ": expected " << expected << ", got " << got);
    }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE_DEFINE("law 10: every FP8 code times edge scales, through a whole update", Executor,
                          report_all_codes) {
  for (const dtype scale : {dtype::fp32, dtype::bf16, dtype::fp8_ue8m0}) {
    check_all_codes<Executor, AllCodes>(dtype::fp8_e4m3, dtype::bf16, scale);
    check_all_codes<Executor, AllCodesFp16>(dtype::fp8_e4m3, dtype::fp16, scale);
    check_all_codes<Executor, AllCodesE5m2Fp32>(dtype::fp8_e5m2, dtype::fp32, scale);
  }
}

TEST_CASE_TEMPLATE_DEFINE("law 10: every code of a widening, through a whole update", Executor, report_all_widenings) {
  for (const auto& [from, to] : {std::pair{dtype::bf16, dtype::fp32},
                                 {dtype::fp16, dtype::fp32},
                                 {dtype::fp8_e4m3, dtype::bf16},
                                 {dtype::fp8_e4m3, dtype::fp16},
                                 {dtype::fp8_e4m3, dtype::fp32},
                                 {dtype::fp8_e5m2, dtype::bf16},
                                 {dtype::fp8_e5m2, dtype::fp16},
                                 {dtype::fp8_e5m2, dtype::fp32},
                                 {dtype::fp8_ue8m0, dtype::bf16},
                                 {dtype::fp8_ue8m0, dtype::fp32}}) {
    const std::int64_t codes = bytes_of(from) == 2 ? 65536 : 256;
    engine<Executor> tested({plain("x", {codes}, to, {from})});
    reference::checkpoint all = {{"x", {from, {codes}, {}}}};
    for (std::int64_t code = 0; code < codes; ++code) {
      all["x"].bytes.push_back(static_cast<std::byte>(code & 255));
      if (codes > 256) all["x"].bytes.push_back(static_cast<std::byte>(code >> 8));
    }
    tested.reload(all);
    CHECK(tested.difference(all) == "");
  }
}

}  // namespace wreload::test
