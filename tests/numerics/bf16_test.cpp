// bf16 and fp16: worked codes, in constant expressions.
#include <doctest/doctest.h>

#include <wreload/numerics/bf16.hpp>
#include <wreload/numerics/fp16.hpp>

namespace wr = wreload;

namespace {
constexpr unsigned bf16_of(std::uint32_t pattern) { return wr::codec<wr::bf16>::encode(wr::fp32_from_bits(pattern)); }
constexpr unsigned fp16_of(std::uint32_t pattern) { return wr::codec<wr::fp16>::encode(wr::fp32_from_bits(pattern)); }
}  // namespace

// Ties go to even, either way; the neighbours of a tie do not; the sign does not matter.
static_assert(bf16_of(0x3F808000U) == 0x3F80);
static_assert(bf16_of(0x3F818000U) == 0x3F82);
static_assert(bf16_of(0x3F808001U) == 0x3F81);
static_assert(bf16_of(0x3F817FFFU) == 0x3F81);
static_assert(bf16_of(0xBF808000U) == 0xBF80);
// A carry into the exponent, overflow to infinity, and the last value before it.
static_assert(bf16_of(0x3FFF8000U) == 0x4000);
static_assert(bf16_of(0x7F7F8000U) == 0x7F80);
static_assert(bf16_of(0x7F7F7FFFU) == 0x7F7F);
static_assert(bf16_of(0xFF7FFFFFU) == 0xFF80);
// Zeros, subnormals (the smallest one's tie too) and NaNs, the signalling one whose truncation would be infinity too.
static_assert(bf16_of(0x80000000U) == 0x8000);
static_assert(bf16_of(0x00018000U) == 0x0002);
static_assert(bf16_of(0x00008000U) == 0x0000);
static_assert(bf16_of(0x00008001U) == 0x0001);
static_assert(bf16_of(0x807FFFFFU) == 0x8080);
static_assert(bf16_of(0x7F800001U) == 0x7FFF);
static_assert(bf16_of(0xFFFFFFFFU) == 0x7FFF);
static_assert(wr::fp32_bits(wr::codec<wr::bf16>::decode(0x3F81)) == 0x3F810000U);
static_assert(wr::fp32_bits(wr::codec<wr::bf16>::decode(0x8001)) == 0x80010000U);

static_assert(fp16_of(0x3F800000U) == 0x3C00);
static_assert(fp16_of(0x3F801000U) == 0x3C00);  // 1 + 2^-11: tie, even is down
static_assert(fp16_of(0x3F803000U) == 0x3C02);  // 1 + 3 * 2^-11: tie, even is up
static_assert(fp16_of(0x477FE000U) == 0x7BFF);  // 65504
static_assert(fp16_of(0x477FEFFFU) == 0x7BFF);  // just below 65520
static_assert(fp16_of(0x477FF000U) == 0x7C00);  // 65520
static_assert(fp16_of(0xFF800000U) == 0xFC00);
static_assert(fp16_of(0x38800000U) == 0x0400);  // 2^-14, the smallest normal
static_assert(fp16_of(0x387FFFFFU) == 0x0400);  // rounds up to it
static_assert(fp16_of(0x33800000U) == 0x0001);  // 2^-24, the smallest subnormal
static_assert(fp16_of(0x33000000U) == 0x0000);  // 2^-25: tie with zero, even is zero
static_assert(fp16_of(0x33000001U) == 0x0001);
static_assert(fp16_of(0x33C00000U) == 0x0002);  // 1.5 * 2^-24: tie, even is up
static_assert(fp16_of(0x80000001U) == 0x8000);  // an fp32 subnormal keeps its sign
static_assert(fp16_of(0xFFC00000U) == 0x7FFF);
static_assert(wr::fp32_bits(wr::codec<wr::fp16>::decode(0x0001)) == 0x33800000U);
static_assert(wr::fp32_bits(wr::codec<wr::fp16>::decode(0x83FF)) == 0xB87FC000U);
static_assert(wr::fp32_bits(wr::codec<wr::fp16>::decode(0xFC00)) == 0xFF800000U);
static_assert(wr::fp32_bits(wr::codec<wr::fp16>::decode(0xFC01)) == 0x7FFFFFFFU);

TEST_CASE("bf16 decode keeps every bit of every code") {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const float value = wr::codec<wr::bf16>::decode(static_cast<std::uint16_t>(code));
    REQUIRE(wr::fp32_bits(value) == code << 16);
  }
}

TEST_CASE("infinities of bf16 and fp16 come back") {
  for (const std::uint16_t infinity : {std::uint16_t{0x7F80}, std::uint16_t{0xFF80}}) {
    CHECK(wr::codec<wr::bf16>::encode(wr::codec<wr::bf16>::decode(infinity)) == infinity);
  }
  for (const std::uint16_t infinity : {std::uint16_t{0x7C00}, std::uint16_t{0xFC00}}) {
    CHECK(wr::codec<wr::fp16>::encode(wr::codec<wr::fp16>::decode(infinity)) == infinity);
  }
}
