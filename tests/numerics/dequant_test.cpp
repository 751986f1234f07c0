// Law 10: dequantisation equals the plain reference bit for bit.
#include <array>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/numerics/dequant.hpp>
#include <wreload/numerics/visit.hpp>

#include "../property.hpp"
#include "../reference/numerics.hpp"

namespace wr = wreload;

namespace {

constexpr std::uint16_t to_bf16(std::uint8_t code, std::uint32_t scale) {
  return wr::dequantise<wr::fp8_e4m3, wr::bf16, wr::fp32>(code, scale);
}

/// fp32 scales where something happens: zeros, subnormals, products that become subnormal or overflow, ties, NaNs.
const std::vector<std::uint32_t> edge_scales = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000007, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001,
    0x00FFFFFF, 0x01000000, 0x02345678, 0x04000000, 0x0C8CCCCD, 0x3727C5AC, 0x3B800000, 0x3DCCCCCD, 0x3E800000,
    0x3F69C71C, 0x3F6B8E39, 0x3F6F1C72, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F808000, 0x3F808001, 0x3F818000,
    0x40490FDB, 0x42FFFFFF, 0x43000000, 0x46FFFFFF, 0x47800000, 0x7A7FFFFF, 0x7B000000, 0x7B924924, 0x7E800000,
    0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0xBF808000, 0xBDCCCCCD};

/// The codes of a scale format to try: all, or the edges of fp32.
std::vector<std::uint32_t> scales_of(wr::dtype type) {
  if (type == wr::dtype::fp32) return edge_scales;
  std::vector<std::uint32_t> codes;
  if (type == wr::dtype::fp8_ue8m0) {
    for (std::uint32_t code = 0; code < 256; ++code) codes.push_back(code);
  } else {
    for (const std::uint32_t edge : edge_scales) codes.push_back(edge >> 16);
    for (std::uint32_t code = 0; code < 65536; code += 251) codes.push_back(code);
  }
  return codes;
}

}  // namespace

// formats.md 2.5, example B, in constant expressions.
static_assert(to_bf16(0x38, 0x3F808000U) == 0x3F80);  // exact tie, even is down
static_assert(to_bf16(0x38, 0x3F818000U) == 0x3F82);  // exact tie, even is up
static_assert(to_bf16(0x38, 0x3F808001U) == 0x3F81);  // just above the tie
static_assert(to_bf16(0xB8, 0x3F808000U) == 0xBF80);  // sign symmetric
static_assert(to_bf16(0x7E, 0x3DCCCCCDU) == 0x4233);
static_assert(to_bf16(0x39, 0x3F69C71CU) == 0x3F84);  // double rounding; a single one gives 3F83
static_assert(to_bf16(0x39, 0x3F6B8E39U) == 0x3F84);  // ... 3F85
static_assert(to_bf16(0x39, 0x3F6F1C72U) == 0x3F86);  // ... 3F87
static_assert(to_bf16(0x7F, 0x3F800000U) == 0x7FFF);  // NaN code
static_assert(to_bf16(0x38, 0xFF800001U) == 0x7FFF);  // NaN scale
static_assert(wr::fp32_bits(wr::dequant_product(1.125F, wr::fp32_from_bits(0x3F69C71CU))) == 0x3F838000U);

TEST_CASE("example B at run time, where no compiler has folded it") {
  struct row {
    std::uint8_t code;
    std::uint32_t scale;
    std::uint32_t product;
    std::uint16_t bf16;
  };
  const std::array<row, 8> rows = {{{0x38, 0x3F808000, 0x3F808000, 0x3F80},
                                    {0x38, 0x3F818000, 0x3F818000, 0x3F82},
                                    {0x38, 0x3F808001, 0x3F808001, 0x3F81},
                                    {0xB8, 0x3F808000, 0xBF808000, 0xBF80},
                                    {0x7E, 0x3DCCCCCD, 0x42333333, 0x4233},
                                    {0x39, 0x3F69C71C, 0x3F838000, 0x3F84},
                                    {0x39, 0x3F6B8E39, 0x3F848000, 0x3F84},
                                    {0x39, 0x3F6F1C72, 0x3F868000, 0x3F86}}};
  for (const row& given : rows) {
    const volatile std::uint8_t code = given.code;
    const volatile std::uint32_t scale = given.scale;
    CAPTURE(given.scale);
    CHECK(wr::dequantise<wr::fp8_e4m3, wr::fp32, wr::fp32>(code, scale) == given.product);
    CHECK(to_bf16(code, scale) == given.bf16);
  }
}

TEST_CASE("example A: 4x6 weight, block 2x2") {
  constexpr std::uint8_t q[4][6] = {{0x38, 0x39, 0x40, 0xC0, 0x7E, 0xFE},
                                    {0x3C, 0x3A, 0x01, 0x81, 0x30, 0xB0},
                                    {0x38, 0x3F, 0x48, 0x49, 0x00, 0x80},
                                    {0x3B, 0xBB, 0x4F, 0x77, 0x08, 0x07}};
  constexpr std::uint32_t s[2][3] = {{0x3F808000, 0x3DCCCCCD, 0x3B800000}, {0x3F69C71C, 0x40490FDB, 0x3727C5AC}};
  constexpr std::uint16_t expected[4][6] = {{0x3F80, 0x3F91, 0x3E4D, 0xBE4D, 0x3FE0, 0xBFE0},
                                            {0x3FC1, 0x3FA1, 0x394D, 0xB94D, 0x3B00, 0xBB00},
                                            {0x3F6A, 0x3FDB, 0x4149, 0x4162, 0x0000, 0x8000},
                                            {0x3FA1, 0xBFA1, 0x41BC, 0x443C, 0x3428, 0x3413}};
  for (int row = 0; row < 4; ++row) {
    for (int col = 0; col < 6; ++col) {
      CAPTURE(row);
      CAPTURE(col);
      CHECK(to_bf16(q[row][col], s[row / 2][col / 2]) == expected[row][col]);
    }
  }
}

TEST_CASE("all 256 codes x edge scales, every combination the library dequantises") {
  int combinations = 0;
  for (int stored = 0; stored < wr::dtype_count; ++stored) {
    for (int runtime = 0; runtime < wr::dtype_count; ++runtime) {
      for (int scale = 0; scale < wr::dtype_count; ++scale) {
        const auto check = [&](auto stored_tag, auto runtime_tag, auto scale_tag) {
          using Stored = decltype(stored_tag);
          using Runtime = decltype(runtime_tag);
          using Scale = decltype(scale_tag);
          REQUIRE(static_cast<int>(Stored::id) == stored);
          REQUIRE(static_cast<int>(Runtime::id) == runtime);
          REQUIRE(static_cast<int>(Scale::id) == scale);
          for (const std::uint32_t scale_code : scales_of(Scale::id)) {
            for (std::uint32_t code = 0; code < 256; ++code) {
              const std::uint32_t got = wr::dequantise<Stored, Runtime, Scale>(
                  static_cast<std::uint8_t>(code), static_cast<wr::code_of<Scale>>(scale_code));
              const std::uint32_t expected =
                  reference::dequantise(Stored::id, code, Scale::id, scale_code, Runtime::id);
              if (got == expected) continue;
              CAPTURE(code);
              CAPTURE(scale_code);
              REQUIRE(got == expected);
            }
          }
          ++combinations;
        };
        wr::visit_dequant(static_cast<wr::dtype>(stored), static_cast<wr::dtype>(runtime),
                          static_cast<wr::dtype>(scale), check);
      }
    }
  }
  CHECK(combinations == 18);
}

TEST_CASE("any code and any fp32 scale") {
  const auto agree = [](std::uint32_t code, std::uint32_t scale) {
    const auto byte = static_cast<std::uint8_t>(code);
    using enum wr::dtype;
    return wr::dequantise<wr::fp8_e4m3, wr::bf16, wr::fp32>(byte, scale) ==
               reference::dequantise(fp8_e4m3, byte, fp32, scale, bf16) &&
           wr::dequantise<wr::fp8_e5m2, wr::fp16, wr::fp32>(byte, scale) ==
               reference::dequantise(fp8_e5m2, byte, fp32, scale, fp16) &&
           wr::dequantise<wr::fp8_e4m3, wr::fp32, wr::fp32>(byte, scale) ==
               reference::dequantise(fp8_e4m3, byte, fp32, scale, fp32);
  };
  wr::test::property("equals the reference", [&] {
    const auto code = *rc::gen::inRange<std::uint32_t>(0, 256);
    const auto scale = *rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint32_t>());
    RC_ASSERT(agree(code, scale));
  });
  std::uint32_t scale = 1;
  for (std::uint32_t i = 0; i < 100000; ++i) {
    scale = scale * 1664525U + 1013904223U;
    REQUIRE(agree(i % 256, scale));
  }
}

TEST_CASE("visit_dequant refuses what the library does not convert") {
  const auto never = [](auto, auto, auto) { FAIL("called"); };
  CHECK_FALSE(wr::visit_dequant(wr::dtype::bf16, wr::dtype::bf16, wr::dtype::fp32, never));
  CHECK_FALSE(wr::visit_dequant(wr::dtype::fp8_e4m3, wr::dtype::fp8_e4m3, wr::dtype::fp32, never));
  CHECK_FALSE(wr::visit_dequant(wr::dtype::fp8_e4m3, wr::dtype::bf16, wr::dtype::fp16, never));
  CHECK_FALSE(wr::visit_dequant(wr::dtype::none, wr::dtype::none, wr::dtype::none, never));
}
