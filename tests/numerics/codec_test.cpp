// Laws that every codec keeps, over all its codes and over random floats.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <doctest/doctest.h>

#include <wreload/numerics/codecs.hpp>

#include "../property.hpp"
#include "../reference/numerics.hpp"

namespace wr = wreload;

namespace {

template <class Format>
constexpr std::uint32_t code_count = Format::id == wr::dtype::fp4_e2m1x2 ? 16
                                     : sizeof(wr::code_of<Format>) == 1  ? 256
                                                                         : 65536;

template <class Format>
std::uint32_t encode_bits(std::uint32_t pattern) {
  return wr::codec<Format>::encode(wr::fp32_from_bits(pattern));
}

template <class Format>
std::uint32_t expected_code(std::uint32_t pattern) {
  const double value = reference::value_of(wr::dtype::fp32, pattern);
  return Format::id == wr::dtype::fp8_ue8m0 ? reference::ceil_ue8m0(value) : reference::nearest(Format::id, value);
}

/// The float patterns where rounding decides something: around every code's value and around every midpoint.
template <class Format, class Visit>
void for_each_edge(Visit&& visit) {
  for (std::uint32_t code = 0; code < code_count<Format>; ++code) {
    const std::uint32_t pattern = wr::fp32_bits(wr::codec<Format>::decode(static_cast<wr::code_of<Format>>(code)));
    const std::uint32_t next = wr::fp32_bits(wr::codec<Format>::decode(static_cast<wr::code_of<Format>>(code + 1)));
    const std::uint32_t midpoint = pattern + (next - pattern) / 2;  // as integers: the exact midpoint of neighbours
    for (std::uint32_t delta = 0; delta < 3; ++delta) {
      visit(pattern + delta - 1);
      visit(midpoint + delta - 1);
    }
  }
  for (const std::uint32_t sign : {0x00000000U, 0x80000000U}) {
    for (const std::uint32_t pattern :
         {0x00000000U, 0x00000001U, 0x00400000U, 0x00400001U, 0x007FFFFFU, 0x00800000U, 0x3F800000U, 0x7F000000U,
          0x7F000001U, 0x7F7FFFFFU, 0x7F7F7FFFU, 0x7F7F8000U, 0x7F800000U, 0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU}) {
      visit(sign | pattern);
    }
  }
}

}  // namespace

#define ALL_NARROW_FORMATS wr::bf16, wr::fp16, wr::fp8_e4m3, wr::fp8_e5m2, wr::fp4_e2m1x2, wr::fp8_ue8m0

TEST_CASE_TEMPLATE("decode gives the defined value of every code", Format, ALL_NARROW_FORMATS) {
  for (std::uint32_t code = 0; code < code_count<Format>; ++code) {
    const double got = wr::codec<Format>::decode(static_cast<wr::code_of<Format>>(code));
    const double expected = reference::value_of(Format::id, code);
    CAPTURE(code);
    REQUIRE(std::isnan(got) == std::isnan(expected));
    if (std::isnan(got)) continue;
    REQUIRE(got == expected);
    REQUIRE(std::signbit(got) == std::signbit(expected));
  }
}

TEST_CASE_TEMPLATE("every finite code comes back from its value", Format, ALL_NARROW_FORMATS) {
  for (std::uint32_t code = 0; code < code_count<Format>; ++code) {
    const float value = wr::codec<Format>::decode(static_cast<wr::code_of<Format>>(code));
    if (!std::isfinite(value)) continue;
    CAPTURE(code);
    REQUIRE(wr::codec<Format>::encode(value) == code);
  }
}

TEST_CASE_TEMPLATE("encode equals the reference at every code, midpoint and neighbour", Format, ALL_NARROW_FORMATS) {
  for_each_edge<Format>([](std::uint32_t pattern) {
    CAPTURE(pattern);
    REQUIRE(encode_bits<Format>(pattern) == expected_code<Format>(pattern));
  });
}

TEST_CASE_TEMPLATE("encode equals the reference on any float", Format, ALL_NARROW_FORMATS) {
  wr::test::property("equals the reference", [] {
    const auto pattern = *rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint32_t>());
    RC_ASSERT(encode_bits<Format>(pattern) == expected_code<Format>(pattern));
  });
  std::uint32_t pattern = 12345;
  for (int i = 0; i < 100000; ++i) {
    pattern = pattern * 1664525U + 1013904223U;
    REQUIRE(encode_bits<Format>(pattern) == expected_code<Format>(pattern));
  }
}

TEST_CASE_TEMPLATE("encode is monotone and, but for ue8m0, odd", Format, ALL_NARROW_FORMATS) {
  wr::test::property("keeps order and sign", [] {
    const auto a = *rc::gen::inRange<std::uint32_t>(0, 0x7F800001U);
    const auto b = *rc::gen::inRange<std::uint32_t>(0, 0x7F800001U);
    RC_ASSERT(encode_bits<Format>(std::min(a, b)) <= encode_bits<Format>(std::max(a, b)));
    if constexpr (Format::id != wr::dtype::fp8_ue8m0) {
      const std::uint32_t sign = code_count<Format> / 2;
      RC_ASSERT(encode_bits<Format>(a | 0x80000000U) == (encode_bits<Format>(a) | sign));
    }
  });
}

TEST_CASE_TEMPLATE("every NaN has one code, and decodes to one NaN", Format, wr::fp16, wr::fp8_e4m3, wr::fp8_e5m2,
                   wr::fp8_ue8m0) {
  const std::uint32_t nan_code = encode_bits<Format>(0x7FC00000U);
  for (const std::uint32_t nan : {0x7F800001U, 0xFF800001U, 0x7FBFFFFFU, 0xFFC00000U, 0xFFFFFFFFU}) {
    CHECK(encode_bits<Format>(nan) == nan_code);
  }
  for (std::uint32_t code = 0; code < code_count<Format>; ++code) {
    const float value = wr::codec<Format>::decode(static_cast<wr::code_of<Format>>(code));
    if (std::isnan(value)) REQUIRE(wr::fp32_bits(value) == 0x7FFFFFFFU);
  }
}

TEST_CASE("fp32 keeps every pattern but makes all NaNs one") {
  for (const std::uint32_t pattern : {0x00000000U, 0x80000000U, 0x00000001U, 0x807FFFFFU, 0x3F800000U, 0xFF800000U}) {
    CHECK(encode_bits<wr::fp32>(pattern) == pattern);
  }
  for (const std::uint32_t nan : {0x7F800001U, 0x7FC00000U, 0xFF800001U, 0xFFFFFFFFU}) {
    CHECK(encode_bits<wr::fp32>(nan) == 0x7FFFFFFFU);
  }
}

// What is a format and what is not.
static_assert(wr::encodable_format<wr::bf16> && wr::encodable_format<wr::fp8_ue8m0>);
static_assert(!wr::float_format<wr::u8> && !wr::float_format<wr::fp64> && !wr::float_format<int>);
static_assert(std::is_same_v<wr::code_of<wr::fp8_e4m3>, std::uint8_t>);
