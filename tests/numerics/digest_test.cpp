// Digests add up over any cut, and show what they should show.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/numerics/digest.hpp>

#include "../property.hpp"

namespace wr = wreload;

namespace {

/// Elements of a tile, dense.
struct tile {
  std::int64_t rows = 0, cols = 0, row = 0, col = 0;  ///< of the first element, in the tensor
  int element = 1;
  std::vector<std::uint64_t> values = {};

  std::uint64_t& value(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * cols + c)]; }
  std::uint64_t digest() const {
    std::uint64_t sum = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        sum += wr::digest_element(row + r, col + c, element, values[static_cast<std::size_t>(r * cols + c)]);
    return sum;
  }
};

std::uint64_t limit(int element) { return element == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * element)) - 1; }

tile draw_tile(std::int64_t least = 1) {
  const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1)); };
  tile made{.rows = in(least, 9), .cols = in(least, 40), .element = static_cast<int>(std::int64_t{1} << in(0, 3))};
  made.row = in(0, 1 << 20) * 256 + in(0, 256 - made.rows);
  made.col = in(0, 1 << 10) * 4096 + in(0, 4096 - made.cols);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const bool small = in(0, 1) == 0;
  for (std::int64_t i = 0; i < made.rows * made.cols; ++i)
    made.values.push_back(random() & limit(made.element) & (small ? 3U : ~std::uint64_t{0}));
  return made;
}

/// Inverse of an odd number mod 2^64.
std::uint64_t inverse(std::uint64_t odd) {
  std::uint64_t found = odd;
  for (int i = 0; i < 6; ++i) found *= 2 - odd * found;
  return found;
}

/// The least |u| + |v| > 0 with u + v * ratio = 0 mod 2^64, where it is below 2^32.
std::uint64_t least_cancelling(std::uint64_t ratio) {
  using wide = __int128;
  wide a[2] = {wide{1} << 64, 0}, b[2] = {-static_cast<wide>(ratio), 1};
  const auto size = [](const wide* v) { return (v[0] < 0 ? -v[0] : v[0]) + (v[1] < 0 ? -v[1] : v[1]); };
  // Euclid on the first components. A vector with |u * v| < 2^63 is a multiple of one of its steps (Legendre).
  wide least = size(b);
  while (b[0] != 0) {
    const wide times = a[0] / b[0];
    for (int i = 0; i < 2; ++i) std::swap(a[i] -= times * b[i], b[i]);
    least = std::min(least, size(b));
  }
  return static_cast<std::uint64_t>(std::min(least, wide{1} << 62));
}

}  // namespace

// The function is the format: these numbers never change.
static_assert(wr::digest_element(0, 0, 1, 1) == wr::digest_row_weight(0) * wr::digest_half_weight(0));
static_assert(wr::digest_element(256, 8192, 1, 1) == wr::digest_element(0, 0, 1, 1));
static_assert(wr::digest_element(1, 3, 1, 0x7F) == wr::digest_element(1, 1, 2, 0x7F00));
static_assert(wr::digest_element(5, 2, 4, 0x12345678) == wr::digest_element(5, 4, 2, 0x5678) + wr::digest_element(5, 5, 2, 0x1234));
static_assert(wr::digest_row_weight(0) % 2 == 1 && wr::digest_half_weight(0) % 2 == 1);

TEST_CASE("the parts add up to the whole, whatever the cut; zeros add nothing") {
  wr::test::property("adds up", [] {
    tile whole = draw_tile();
    std::uint64_t sum = 0;
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    for (int part = 0; part < 3; ++part) {
      tile some = whole;
      for (std::size_t i = 0; i < some.values.size(); ++i)
        if ((i * 2654435761U >> 7) % 3 != static_cast<std::size_t>(part)) some.values[i] = 0;
      sum += some.digest();
    }
    RC_ASSERT(sum == whole.digest());
  });
}

TEST_CASE("digest_rows: the sum of digest_element") {
  wr::test::property("any part of a tile", [] {
    const tile whole = draw_tile();
    const std::int64_t row_bytes = whole.cols * whole.element, stride = row_bytes + *rc::gen::inRange<std::int64_t>(0, 5);
    std::vector<std::byte> bytes(static_cast<std::size_t>(whole.rows * stride), std::byte{0xEE});
    for (std::int64_t i = 0; i < whole.rows * whole.cols; ++i)
      std::memcpy(&bytes[static_cast<std::size_t>(i / whole.cols * stride + i % whole.cols * whole.element)],
                  &whole.values[static_cast<std::size_t>(i)], static_cast<std::size_t>(whole.element));
    RC_ASSERT(wr::digest_rows(bytes.data(), whole.rows, row_bytes, stride, whole.row % 256, whole.col % 4096 * whole.element) == whole.digest());
  });
  // More half-words than are kept at a time, from an odd byte on.
  std::mt19937_64 random(7);
  tile wide{.rows = 2, .cols = 4095, .row = 254, .col = 1};
  for (std::int64_t i = 0; i < wide.rows * wide.cols; ++i) wide.values.push_back(random() & 0xFF);
  std::vector<std::byte> bytes;
  for (const std::uint64_t value : wide.values) bytes.push_back(static_cast<std::byte>(value));
  CHECK(wr::digest_rows(bytes.data(), 2, 4095, 4095, 254, 1) == wide.digest());
}

TEST_CASE("one changed element shows, and so do swaps of elements, rows, columns and words, shifts and moved zeros") {
  wr::test::property("each shows", [] {
    tile values = draw_tile(2);
    const std::uint64_t before = values.digest();
    const auto differs = [&](const tile& other) { return other.values == values.values || other.digest() != before; };
    const auto row = [&] { return *rc::gen::inRange<std::int64_t>(0, values.rows); };
    const auto col = [&] { return *rc::gen::inRange<std::int64_t>(0, values.cols); };
    tile other = values;
    other.value(row(), col()) ^= std::uint64_t{1} << *rc::gen::inRange(0, 8 * values.element);
    RC_ASSERT(differs(other));
    other = values;
    std::swap(other.value(row(), col()), other.value(row(), col()));
    RC_ASSERT(differs(other));
    other = values;
    const std::int64_t a = row(), b = row(), c = col(), d = col();
    for (std::int64_t i = 0; i < values.cols; ++i) other.value(a, i) = values.value(b, i), other.value(b, i) = values.value(a, i);
    RC_ASSERT(differs(other));
    other = values;
    for (std::int64_t i = 0; i < values.rows; ++i) other.value(i, c) = values.value(i, d), other.value(i, d) = values.value(i, c);
    RC_ASSERT(differs(other));
    other = values;
    std::rotate(other.values.begin(), other.values.begin() + 1 + static_cast<std::ptrdiff_t>(c), other.values.end());
    RC_ASSERT(differs(other));
    other = values;
    other.value(a, c) = 0;
    const std::uint64_t first = other.digest();
    other = values;
    other.value(b, d) = 0;
    RC_ASSERT(first != other.digest() || (a == b && c == d) || (values.value(a, c) == 0 && values.value(b, d) == 0));
  });
}

TEST_CASE("one changed element always shows: of 4 bytes too, in every column") {
  // A change of u in the low half and of v in the high half is missed where u * low + v * high = 0. 2^17 > |u| + |v|.
  std::uint64_t least = ~std::uint64_t{0};
  for (std::uint32_t half = 0; half < 8192; half += 2) {
    const std::uint64_t ratio = wr::digest_half_weight(half + 1) * inverse(wr::digest_half_weight(half));
    least = std::min(least, least_cancelling(ratio));
  }
  CHECK(least > (1U << 17));
  CHECK(least_cancelling(~std::uint64_t{0}) == 2);  // u = v: what it must find
  CHECK(least_cancelling(std::uint64_t{0} - 1000 * inverse(777)) == 1777);
}

TEST_CASE("a swap of two elements of 1 or 2 bytes always shows: all weights of a tile differ in their low 49 bits") {
  std::vector<std::uint64_t> weights;
  for (std::uint32_t row = 0; row < 256; ++row)
    for (std::uint32_t half = 0; half < 4096; ++half)
      weights.push_back(wr::digest_row_weight(row) * wr::digest_half_weight(half) << 15);
  std::sort(weights.begin(), weights.end());
  CHECK(std::adjacent_find(weights.begin(), weights.end()) == weights.end());
}

TEST_CASE("weights use all of their bits") {
  for (int bit = 1; bit < 64; ++bit) {
    int rows = 0, halves = 0;
    for (std::uint32_t i = 0; i < 256; ++i) rows += static_cast<int>(wr::digest_row_weight(i) >> bit & 1);
    for (std::uint32_t i = 0; i < 16384; ++i) halves += static_cast<int>(wr::digest_half_weight(i) >> bit & 1);
    CHECK(std::abs(rows - 128) < 40);      // one standard deviation is 8
    CHECK(std::abs(halves - 8192) < 320);  // and 64
  }
}

TEST_CASE("random corruption and random exchanges are never missed") {
  std::mt19937_64 random(11);
  tile values{.rows = 64, .cols = 32, .row = 192, .col = 4000, .element = 2};
  for (std::int64_t i = 0; i < values.rows * values.cols; ++i) values.values.push_back(random() & 0xFFFF);
  std::vector<std::uint64_t> seen = {0};
  for (int i = 0; i < 100000; ++i) {  // the digest is linear: the difference alone tells
    std::uint64_t difference = 0;
    const int changes = 2 + static_cast<int>(random() % 5);
    for (int change = 0; change < changes; ++change) {
      const auto r = static_cast<std::int64_t>(random() % 256), c = static_cast<std::int64_t>(random() % 4096);
      const std::uint64_t bits = i % 4 == 0 ? 0x8000 : 1 + random() % 0xFFFF;  // signs alone, every fourth time
      difference += wr::digest_element(r, c, 2, bits) * (random() % 2 == 0 ? 1 : ~std::uint64_t{0});
    }
    seen.push_back(difference);
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}
