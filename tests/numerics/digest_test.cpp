// Digests add up over any cut, and show what they should show.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/numerics/digest.hpp>

#include "../property.hpp"

namespace wr = wreload;

namespace {
std::uint64_t digest(const std::vector<std::uint16_t>& values, std::size_t begin, std::size_t end) {
  std::uint64_t sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += wr::digest_element(i, values[i]);
  return sum;
}
}  // namespace

// The function is part of the format: these numbers never change.
static_assert(wr::digest_element(0, 0) == 0x283160B83A11E5D0U);
static_assert(wr::digest_element(1, 0x3F80) == 0xFD66BB721FA184FCU);

TEST_CASE("the parts add up to the whole, whatever the cut") {
  wr::test::property("adds up", [] {
    const auto values = *rc::gen::arbitrary<std::vector<std::uint16_t>>();
    const auto cut = *rc::gen::inRange<std::size_t>(0, values.size() + 1);
    RC_ASSERT(digest(values, 0, cut) + digest(values, cut, values.size()) == digest(values, 0, values.size()));
  });
}

TEST_CASE("a swap of two different values shows, and so does one changed value") {
  wr::test::property("swaps and changes show", [] {
    auto values = *rc::gen::suchThat<std::vector<std::uint16_t>>([](const auto& v) { return v.size() >= 2; });
    const auto i = *rc::gen::inRange<std::size_t>(0, values.size());
    const auto j = *rc::gen::inRange<std::size_t>(0, values.size());
    const std::uint64_t before = digest(values, 0, values.size());
    const bool differ = values[i] != values[j];
    std::swap(values[i], values[j]);
    RC_ASSERT((digest(values, 0, values.size()) != before) == differ);
    std::swap(values[i], values[j]);
    values[i] = static_cast<std::uint16_t>(values[i] ^ (1U << *rc::gen::inRange(0, 16)));
    RC_ASSERT(digest(values, 0, values.size()) != before);
  });
}

TEST_CASE("swaps show for all pairs of small values near each other, a row apart or 2^32 apart") {
  for (const std::uint64_t distance : {1ULL, 2ULL, 7168ULL, 1ULL << 32}) {
    for (std::uint64_t a = 0; a < 64; ++a) {
      for (std::uint64_t b = 0; b < a; ++b) {
        for (std::uint64_t index = 0; index < 8; ++index) {
          REQUIRE(wr::digest_element(index, a) + wr::digest_element(index + distance, b) !=
                  wr::digest_element(index, b) + wr::digest_element(index + distance, a));
        }
      }
    }
  }
}

TEST_CASE("each input bit flips each output bit about half of the time") {
  constexpr int samples = 4096;
  double worst = 0;
  for (int bit = 0; bit < 128; ++bit) {
    std::array<int, 64> flips = {};
    const std::uint64_t one = std::uint64_t{1} << (bit % 64);
    for (std::uint64_t sample = 0; sample < samples; ++sample) {
      const std::uint64_t index = sample * 37;
      const std::uint64_t value = sample * 0x9E37 % 65536;
      const std::uint64_t other =
          bit < 64 ? wr::digest_element(index ^ one, value) : wr::digest_element(index, value ^ one);
      const std::uint64_t changed = wr::digest_element(index, value) ^ other;
      for (std::size_t out = 0; out < 64; ++out) flips[out] += static_cast<int>((changed >> out) & 1);
    }
    for (const int count : flips) worst = std::max(worst, std::fabs(count / double{samples} - 0.5));
  }
  CHECK(worst < 0.06);  // one standard deviation is 0.0078
}
