// Map and its steps: what they pad, what they need of a slot, and which storage map they give.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/policy/map.hpp>

#include "../property.hpp"

namespace wr = wreload;
using kind = wr::row_step_kind;
using wr::dtype;
using wr::test::property;

// The docstrings' examples.
static_assert(wr::Map<wr::PadToMultiple<32, 32>>::spec.resolve(200, 40, dtype::fp4_e2m1x2).padded_cols == 48);
using map = wr::Map<wr::PadToMultiple<128, 4>, wr::ShuffleRows<32>, wr::Swizzle128x4>;
static_assert(map::spec.swizzled && map::spec.resolve(200, 5, dtype::fp8_e4m3).padded_rows == 256);
static_assert(!wr::Map<wr::ShuffleRows<32>>::spec.unmet(200, dtype::fp4_e2m1x2).ok());

static_assert(wr::Map<wr::MnMajor>::spec.resolve(3, 5, dtype::fp32).storage_cols() == 4);

static_assert(wr::policy<map> && std::is_same_v<map::axis, wr::axis::map>);
static_assert(!wr::policy<wr::Swizzle128x4> && !wr::map_step<int> && !wr::map_step<map>);
static_assert(std::is_trivially_copyable_v<wr::map_spec> && wr::detail::no_map::spec == wr::map_spec{});

using cutlass_order = wr::Map<wr::PadToMultiple<32, 32>>;

// The whole order of steps.
using all =
    wr::Map<wr::PadToMultiple<8, 2>, wr::SwapHalves, wr::GatedInterleave, wr::ShuffleRows<16>, wr::Swizzle128x4>;
static_assert(all::spec == wr::map_spec{8, 2, {kind::swap_halves, kind::gated_interleave, kind::shuffle16}, true});
static_assert(wr::Map<wr::PadToMultiple<8, 2>, wr::SwapHalves, wr::MnMajor>::spec == wr::map_spec{8, 2, {kind::swap_halves}, false, true});
static_assert(wr::map_spec{}.keeps_order() && cutlass_order::spec.keeps_order() && !all::spec.keeps_order() && !wr::Map<wr::MnMajor>::spec.keeps_order());

namespace {

// What the quantised layouts use (formats.md, table 1).
using cutlass_weight = wr::Map<wr::PadToMultiple<32, 32>>;
using cutlass_scale = wr::Map<wr::Swizzle128x4>;
using trtllm_weight = wr::Map<wr::PadToMultiple<128, 64>, wr::ShuffleRows<32>>;
using trtllm_scale = wr::Map<wr::PadToMultiple<128, 4>, wr::ShuffleRows<32>, wr::Swizzle128x4>;
using trtllm_gated_weight = wr::Map<wr::GatedInterleave, wr::ShuffleRows<32>>;
using trtllm_gated_scale = wr::Map<wr::GatedInterleave, wr::ShuffleRows<32>, wr::Swizzle128x4>;

wr::shape padded(const wr::map_spec& spec, std::int64_t rows, std::int64_t cols, dtype type) {
  REQUIRE(spec.unmet(rows, type).ok());
  const wr::resolved_map slot = spec.resolve(rows, cols, type);
  return {slot.padded_rows, slot.padded_cols};
}

}  // namespace

TEST_CASE("pads of the worked example: N = 200, K = 80") {
  CHECK(padded(cutlass_weight::spec, 200, 40, dtype::fp4_e2m1x2) == wr::shape{224, 48});
  CHECK(padded(cutlass_scale::spec, 200, 5, dtype::fp8_e4m3) == wr::shape{256, 8});
  CHECK(padded(trtllm_weight::spec, 200, 40, dtype::fp4_e2m1x2) == wr::shape{256, 64});
  CHECK(padded(trtllm_scale::spec, 200, 5, dtype::fp8_e4m3) == wr::shape{256, 8});
}

TEST_CASE("PadToMultiple counts values: two to a packed fp4 byte, one to any other element, whole elements always") {
  constexpr wr::map_spec spec = wr::Map<wr::PadToMultiple<1, 32>>::spec;
  CHECK(padded(spec, 7, 40, dtype::fp8_e4m3) == wr::shape{7, 64});
  CHECK(padded(spec, 7, 40, dtype::bf16) == wr::shape{7, 64});
  CHECK(padded(spec, 7, 40, dtype::fp4_e2m1x2) == wr::shape{7, 48});
  CHECK(padded(wr::Map<wr::PadToMultiple<1, 3>>::spec, 7, 4, dtype::fp4_e2m1x2) == wr::shape{7, 6});
  CHECK(padded(wr::Map<wr::PadToMultiple<4, 1>>::spec, 0, 0, dtype::fp4_e2m1x2) == wr::shape{0, 0});
}

TEST_CASE("each half is padded by itself, a slot without halves at its end") {
  const auto halves = wr::Map<wr::PadToMultiple<16, 1>, wr::GatedInterleave>::spec.resolve(400, 5, dtype::u8);
  CHECK(halves.padded_rows == 416);
  CHECK(halves.half_rows == 208);
  CHECK(halves.map.steps[0] == wr::row_step{kind::gated_interleave, 208});
  const auto whole = wr::Map<wr::PadToMultiple<16, 1>>::spec.resolve(403, 5, dtype::u8);
  CHECK(whole.padded_rows == 416);
  CHECK(whole.half_rows == 0);
  CHECK(wr::is_identity(whole.map));
}

TEST_CASE("the swizzle's pad comes after the halves: once per expert, behind row 2I") {
  const auto slot = wr::Map<wr::SwapHalves, wr::Swizzle128x4>::spec.resolve(200, 5, dtype::fp8_e4m3);
  CHECK(slot.padded_rows == 256);
  CHECK(slot.half_rows == 100);
  CHECK(slot.map == wr::storage_map{{{kind::swap_halves, 100}}, true, 2});
  CHECK(wr::map_row(slot.map, 0) == 100);
  CHECK(wr::map_row(slot.map, 199) == 99);
  CHECK(wr::map_row(slot.map, 200) == 200);
}

TEST_CASE("MN-major scales: the transpose, rows padded to 16 bytes") {
  for (const auto& [rows, pitch] : {std::pair<std::int64_t, std::int64_t>{1, 4}, {4, 4}, {33, 36}, {0, 0}}) {
    const auto slot = wr::Map<wr::MnMajor>::spec.resolve(rows, 56, dtype::fp32);
    CHECK(slot.padded_rows == pitch);
    CHECK(slot.storage_rows() == 56);
    CHECK(slot.storage_cols() == pitch);
    CHECK(slot.map == wr::storage_map{.mn_major_bytes = 4});
  }
  const auto padded = wr::Map<wr::PadToMultiple<6, 8>, wr::MnMajor>::spec.resolve(5, 3, dtype::fp32);
  CHECK(padded.storage_rows() == 8);
  CHECK(padded.storage_cols() == 8);
  const auto swapped = wr::Map<wr::SwapHalves, wr::MnMajor>::spec.resolve(6, 3, dtype::fp32);
  CHECK(wr::map_offset(swapped.map, 0, 4, 32) == 32 + 12);  // row 0 lies at 3, column 1
}

TEST_CASE("TRT-LLM's gated experts: the worked table of I = 64, C = 8") {
  const auto weight = trtllm_gated_weight::spec.resolve(128, 64, dtype::fp4_e2m1x2);
  const auto scale = trtllm_gated_scale::spec.resolve(128, 8, dtype::fp8_e4m3);
  CHECK(wr::keeps_rows(weight.map));
  CHECK(wr::map_row(weight.map, 64 + 16) == 40);
  CHECK(wr::map_offset(weight.map, 64 + 16, 3, 64) == 40 * 64 + 3);
  CHECK(wr::map_offset(scale.map, 64 + 16, 2, 8) == 134);
  CHECK(wr::map_offset(scale.map, 17, 5, 8) == 773);
  CHECK(wr::map_offset(scale.map, 64 + 63, 7, 8) == 1023);
}

TEST_CASE("TRT-LLM dense: pad, shuffle the padded rows, swizzle") {
  const auto slot = trtllm_scale::spec.resolve(200, 5, dtype::fp8_e4m3);
  CHECK(wr::map_row(slot.map, 199) == 32 * 6 + 8 * 3 + 1);  // lies among rows that pads share
  CHECK(wr::map_offset(slot.map, 199, 4, 8) == wr::map_offset({.swizzled = true, .tile_cols = 2}, 217, 4, 8));
}

TEST_CASE("what a slot lacks is said with the policy and the fact") {
  const auto told = [](const wr::map_spec& spec, std::int64_t rows, dtype type) {
    const wr::map_need need = spec.unmet(rows, type);
    return need.ok() ? std::string("ok") : std::string(need.expected) + " / " + need.got();
  };
  CHECK(told(wr::Map<wr::ShuffleRows<32>>::spec, 200, dtype::u8) ==
        "padded rows in multiples of 32 (ShuffleRows<32>) / 200 padded rows");
  CHECK(told(wr::Map<wr::PadToMultiple<8, 1>, wr::ShuffleRows<16>>::spec, 4, dtype::u8) ==
        "padded rows in multiples of 16 (ShuffleRows<16>) / 8 padded rows");
  CHECK(told(wr::Map<wr::ShuffleRows<32>, wr::Swizzle128x4>::spec, 160, dtype::u8) ==
        "padded rows in multiples of 128 (ShuffleRows<32>, Swizzle128x4) / 160 padded rows");
  CHECK(told(wr::Map<wr::ShuffleRows<16>, wr::Swizzle128x4>::spec, 192, dtype::u8) ==
        "padded rows in multiples of 128 (ShuffleRows<16>, Swizzle128x4) / 192 padded rows");
  CHECK(told(wr::Map<wr::GatedInterleave>::spec, 7, dtype::u8) == "two equal halves (GatedInterleave) / 7 rows");
  CHECK(told(wr::Map<wr::SwapHalves>::spec, 7, dtype::u8) == "two equal halves (SwapHalves) / 7 rows");
  CHECK(told(cutlass_scale::spec, 128, dtype::bf16) == "elements of 1 byte (Swizzle128x4) / 2 bytes an element");
  CHECK(told(wr::Map<wr::MnMajor>::spec, 3, dtype::fp8_ue8m0) == "elements of 4 bytes (MnMajor) / 1 bytes an element");
  CHECK(told(wr::Map<wr::MnMajor>::spec, 3, dtype::fp32) == "ok");
  CHECK(told(trtllm_gated_weight::spec, 2 * 40, dtype::u8) ==
        "padded rows in multiples of 32 (ShuffleRows<32>) / 80 padded rows");  // I % 16
  for (const wr::map_spec& spec : {cutlass_weight::spec, cutlass_scale::spec, trtllm_weight::spec, trtllm_scale::spec})
    CHECK(told(spec, 200, dtype::fp8_e4m3) == "ok");
  CHECK(told(trtllm_gated_scale::spec, 2 * 192, dtype::fp8_e4m3) == "ok");
  CHECK(told(wr::Map<wr::ShuffleRows<32>>::spec, 64, dtype::bf16) == "ok");  // rows of any element
}

TEST_CASE("spelled as it is written") {
  CHECK(wr::to_string(wr::map_spec{}) == "identity");
  CHECK(wr::to_string(all::spec) == "PadToMultiple<8, 2>, SwapHalves, GatedInterleave, ShuffleRows<16>, Swizzle128x4");
  CHECK(wr::to_string(wr::Map<wr::SwapHalves, wr::MnMajor>::spec) == "SwapHalves, MnMajor");
  CHECK(wr::to_string(trtllm_weight::spec) == "PadToMultiple<128, 64>, ShuffleRows<32>");
}

TEST_CASE("any extents that a map takes: a bijection of the padded slot onto its storage") {
  property("bijection", [] {
    const wr::map_spec spec = *rc::gen::element(
        cutlass_weight::spec, cutlass_scale::spec, trtllm_weight::spec, trtllm_scale::spec, trtllm_gated_weight::spec,
        trtllm_gated_scale::spec, all::spec, wr::Map<wr::SwapHalves, wr::Swizzle128x4>::spec,
        wr::Map<wr::PadToMultiple<6, 5>, wr::GatedInterleave, wr::Swizzle128x4>::spec, wr::Map<wr::MnMajor>::spec,
        wr::Map<wr::PadToMultiple<6, 5>, wr::GatedInterleave, wr::MnMajor>::spec);
    const dtype type = *rc::gen::element(dtype::u8, dtype::fp4_e2m1x2, dtype::bf16, dtype::fp32);
    const std::int64_t unit = *rc::gen::element<std::int64_t>(1, 2, 16, 32, 128);
    const std::int64_t rows = *rc::gen::inRange<std::int64_t>(0, 5) * unit;
    const std::int64_t cols = *rc::gen::element<std::int64_t>(1, 4, 5, 8, 24, 37, 160);
    RC_PRE(spec.unmet(rows, type).ok());
    const wr::resolved_map slot = spec.resolve(rows, cols, type);
    RC_ASSERT(slot.padded_rows >= rows && slot.padded_cols >= cols);
    RC_ASSERT(slot.half_rows == 0 || 2 * slot.half_rows >= rows);
    const std::int64_t pitch = slot.storage_cols() * wr::bytes_of(type);
    std::vector<bool> taken(static_cast<std::size_t>(slot.storage_rows() * pitch));
    for (std::int64_t row = 0; row < slot.padded_rows; ++row)
      for (std::int64_t col = 0; col < slot.padded_cols * wr::bytes_of(type); ++col) {
        const std::int64_t offset = wr::map_offset(slot.map, row, col, pitch);
        RC_ASSERT(offset >= 0 && offset < slot.storage_rows() * pitch);
        RC_ASSERT(!taken[static_cast<std::size_t>(offset)]);
        taken[static_cast<std::size_t>(offset)] = true;
        const wr::matrix_position back = wr::unmap_offset(slot.map, offset, pitch);
        RC_ASSERT((back == wr::matrix_position{row, col}));
      }
  });
}
