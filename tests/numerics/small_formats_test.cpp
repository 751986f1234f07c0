// e4m3, e5m2, e2m1 and ue8m0: worked codes, most of them in constant expressions.
#include <array>

#include <doctest/doctest.h>

#include <wreload/numerics/e2m1.hpp>
#include <wreload/numerics/e4m3.hpp>
#include <wreload/numerics/e5m2.hpp>
#include <wreload/numerics/ue8m0.hpp>

namespace wr = wreload;

namespace {
using e4m3 = wr::codec<wr::fp8_e4m3>;
using e5m2 = wr::codec<wr::fp8_e5m2>;
using e2m1 = wr::codec<wr::fp4_e2m1x2>;
using ue8m0 = wr::codec<wr::fp8_ue8m0>;
constexpr float infinity = wr::fp32_from_bits(0x7F800000U);
constexpr float nan = wr::fp32_from_bits(0xFFC00000U);
constexpr float smallest = wr::fp32_from_bits(0x00000001U);
}  // namespace

static_assert(e4m3::decode(0x38) == 1.0F && e4m3::decode(0x39) == 1.125F && e4m3::decode(0x7E) == 448.0F);
static_assert(e4m3::decode(0x01) == 0x1p-9F && e4m3::decode(0x87) == -7 * 0x1p-9F && e4m3::decode(0x08) == 0x1p-6F);
static_assert(wr::fp32_bits(e4m3::decode(0x80)) == 0x80000000U);
static_assert(wr::fp32_bits(e4m3::decode(0x7F)) == 0x7FFFFFFFU && wr::fp32_bits(e4m3::decode(0xFF)) == 0x7FFFFFFFU);
static_assert(e4m3::encode(448.0F) == 0x7E && e4m3::encode(464.0F) == 0x7E && e4m3::encode(1e30F) == 0x7E);
static_assert(e4m3::encode(infinity) == 0x7E && e4m3::encode(-infinity) == 0xFE && e4m3::encode(nan) == 0x7F);
static_assert(e4m3::encode(0x1p-10F) == 0x00 && e4m3::encode(-0x1p-10F) == 0x80);      // tie with zero
static_assert(e4m3::encode(3 * 0x1p-10F) == 0x02 && e4m3::encode(5 * 0x1p-10F) == 2);  // ties among subnormals
static_assert(e4m3::encode(15 * 0x1p-10F) == 0x08);                                    // a tie that becomes normal
static_assert(e4m3::encode(1.0625F) == 0x38 && e4m3::encode(1.1875F) == 0x3A && e4m3::encode(1.9375F) == 0x40);
static_assert(e4m3::encode(smallest) == 0x00 && e4m3::encode(-smallest) == 0x80);

static_assert(e5m2::decode(0x3C) == 1.0F && e5m2::decode(0x7B) == 57344.0F && e5m2::decode(0x01) == 0x1p-16F);
static_assert(e5m2::decode(0x7C) == infinity && e5m2::decode(0xFC) == -infinity);
static_assert(wr::fp32_bits(e5m2::decode(0xFD)) == 0x7FFFFFFFU && wr::fp32_bits(e5m2::decode(0x80)) == 0x80000000U);
static_assert(e5m2::encode(57344.0F) == 0x7B && e5m2::encode(61440.0F) == 0x7B && e5m2::encode(-infinity) == 0xFB);
static_assert(e5m2::encode(nan) == 0x7F && e5m2::encode(1.125F) == 0x3C && e5m2::encode(1.375F) == 0x3E);
static_assert(e5m2::encode(0x1p-17F) == 0x00 && e5m2::encode(3 * 0x1p-17F) == 0x02);

static_assert(e2m1::encode(0.25F) == 0 && e2m1::encode(0.75F) == 2 && e2m1::encode(1.25F) == 2);
static_assert(e2m1::encode(1.75F) == 4 && e2m1::encode(2.5F) == 4 && e2m1::encode(3.5F) == 6);
static_assert(e2m1::encode(5.0F) == 6 && e2m1::encode(5.01F) == 7);
static_assert(e2m1::encode(-infinity) == 15 && e2m1::encode(-0.0F) == 8);
static_assert(e2m1::encode(nan) == 7 && e2m1::encode(0.26F) == 1);
static_assert(wr::unpack_e2m1(0x21, 0) == 1 && wr::unpack_e2m1(0x21, 1) == 2 && wr::pack_e2m1(1, 2) == 0x21);

static_assert(ue8m0::decode(127) == 1.0F && ue8m0::decode(254) == 0x1p127F && ue8m0::decode(1) == 0x1p-126F);
static_assert(wr::fp32_bits(ue8m0::decode(0)) == 0x00400000U && wr::fp32_bits(ue8m0::decode(255)) == 0x7FFFFFFFU);
static_assert(ue8m0::encode(1.0F) == 127 && ue8m0::encode(wr::fp32_from_bits(0x3F800001U)) == 128);
static_assert(ue8m0::encode(0.0F) == 0 && ue8m0::encode(smallest) == 0 && ue8m0::encode(0x1p-127F) == 0);
static_assert(ue8m0::encode(wr::fp32_from_bits(0x00400001U)) == 1 && ue8m0::encode(0x1p-126F) == 1);
static_assert(ue8m0::encode(0x1p127F) == 254 && ue8m0::encode(3e38F) == 254 && ue8m0::encode(infinity) == 254);
static_assert(ue8m0::encode(nan) == 255 && ue8m0::encode(-3.0F) == 129);

TEST_CASE("the eight magnitudes of e2m1, both signs") {
  constexpr std::array<float, 8> values = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (std::uint8_t code = 0; code < 8; ++code) {
    CHECK(e2m1::decode(code) == values[code]);
    CHECK(e2m1::decode(static_cast<std::uint8_t>(code | 8)) == -values[code]);
    CHECK(e2m1::decode(static_cast<std::uint8_t>(code | 0xF0)) == values[code]);  // the other nibble is ignored
  }
  CHECK(wr::fp32_bits(e2m1::decode(8)) == 0x80000000U);
}

// formats.md 2.1: W = e2m1 * e4m3 * weight_scale_2, sixteen values a block.
TEST_CASE("the worked NVFP4 row") {
  constexpr std::array<std::uint8_t, 16> bytes = {0x21, 0x43, 0x65, 0x87, 0xA9, 0xCB, 0xED, 0x0F,
                                                  0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10};
  constexpr std::array<float, 16> first = {.375F,  .75F,  1.125F,  1.5F,  2.25F,  3.F,  4.5F,  -0.F,
                                           -.375F, -.75F, -1.125F, -1.5F, -2.25F, -3.F, -4.5F, 0.F};
  const std::array<float, 2> scales = {e4m3::decode(e4m3::encode(1.5F)), e4m3::decode(e4m3::encode(0.25F))};
  for (int i = 0; i < 32; ++i) {
    const std::uint8_t code = wr::unpack_e2m1(bytes[static_cast<std::size_t>(i / 2)], i % 2);
    const float value = e2m1::decode(code) * scales[static_cast<std::size_t>(i / 16)] * 0.5F;
    const float expected = i < 16 ? first[static_cast<std::size_t>(i)] : (i % 2 == 0 ? 0.F : 0.0625F);
    CAPTURE(i);
    CHECK(wr::fp32_bits(value) == wr::fp32_bits(expected));
  }
}

TEST_CASE("packing is the inverse of unpacking") {
  for (int byte = 0; byte < 256; ++byte) {
    const auto packed = static_cast<std::uint8_t>(byte);
    CHECK(wr::pack_e2m1(wr::unpack_e2m1(packed, 0), wr::unpack_e2m1(packed, 1)) == packed);
  }
}

// formats.md 2.6: the exponent byte of max(amax, 1e-4) / 448.
TEST_CASE("the worked DeepGEMM exponents") {
  const auto exponent = [](float amax) { return int{ue8m0::encode((amax > 1e-4F ? amax : 1e-4F) / 448.0F)}; };
  CHECK(exponent(448.0F) == 127);
  CHECK(exponent(450.0F) == 128);
  CHECK(exponent(447.0F) == 127);
  CHECK(exponent(224.0F) == 126);
  CHECK(exponent(1.0F) == 119);
  CHECK(exponent(1e-5F) == 105);
}
