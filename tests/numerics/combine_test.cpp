// maximum and reciprocal against the plain reference.
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/numerics/combine.hpp>

#include "../reference/nvfp4.hpp"

namespace wr = wreload;

namespace {

constexpr std::uint32_t edges[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000002, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x00800001,
                                   0x3F7FFFFF, 0x3F800000, 0x3F800001, 0xBF800000, 0x7E7FFFFF, 0x7E800000, 0x7E800001, 0x7F000000, 0x7F7FFFFF,
                                   0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC12345, 0xFFFFFFFF};

float as_float(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}
std::uint32_t as_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  return bits;
}

}  // namespace

static_assert(wr::maximum(1.0F, 2.0F) == 2.0F && wr::maximum(-1.0F, -2.0F) == -1.0F);
static_assert(wr::fp32_bits(wr::maximum(-0.0F, 0.0F)) == 0 && wr::fp32_bits(wr::maximum(0.0F, -0.0F)) == 0);
static_assert(wr::reciprocal(4.0F) == 0.25F);

TEST_CASE("maximum: every pair of edge values; the order does not matter; NaN wins as the one NaN") {
  for (const std::uint32_t a : edges)
    for (const std::uint32_t b : edges) {
      const std::uint32_t found = as_bits(wr::maximum(as_float(a), as_float(b)));
      CHECK(found == as_bits(reference::nvfp4::greatest({as_float(a), as_float(b)})));
      CHECK(found == as_bits(wr::maximum(as_float(b), as_float(a))));
      for (const std::uint32_t c : edges)
        CHECK(as_bits(wr::maximum(as_float(found), as_float(c))) == as_bits(wr::maximum(as_float(a), wr::maximum(as_float(b), as_float(c)))));
    }
}

TEST_CASE("reciprocal: rounded once, subnormals and infinities too") {
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> all(std::begin(edges), std::end(edges));
  for (int i = 0; i < 200000; ++i) all.push_back(static_cast<std::uint32_t>(random()));
  for (const std::uint32_t bits : all) {
    const std::uint32_t found = wr::codec<wr::fp32>::encode(wr::reciprocal(as_float(bits)));
    if (found != as_bits(reference::nvfp4::inverse(as_float(bits)))) CHECK_MESSAGE(false, bits << " gives " << found);
  }
}
