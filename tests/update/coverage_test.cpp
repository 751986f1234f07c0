// coverage: a set of matrix elements, against a bitmap.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#if defined(__linux__)
#include <malloc.h>
#endif

#include <doctest/doctest.h>

#include <wreload/update/coverage.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

constexpr std::int64_t rows = 9, cols = 9;

/// One flag per element.
struct bitmap {
  std::vector<bool> set = std::vector<bool>(static_cast<std::size_t>(rows * cols), false);

  std::vector<bool>::reference at(std::int64_t r, std::int64_t c) { return set[static_cast<std::size_t>(r * cols + c)]; }
  void fill(const wr::rect& part, bool value) {
    for (std::int64_t r = part.row_begin; r < part.row_end; ++r)
      for (std::int64_t c = part.col_begin; c < part.col_end; ++c) at(r, c) = value;
  }
  std::int64_t count(const wr::rect& part) {
    std::int64_t found = 0;
    for (std::int64_t r = part.row_begin; r < part.row_end; ++r)
      for (std::int64_t c = part.col_begin; c < part.col_end; ++c) found += at(r, c) ? 1 : 0;
    return found;
  }
};

/// Empty ones among them; now and then whole rows or columns, where sets merge.
wr::rect any_rect() {
  const auto range = [](std::int64_t size) {
    const auto end = [size] { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(0, size + 1)); };
    const std::int64_t a = end(), b = end();
    return std::pair(std::min(a, b), std::max(a, b));
  };
  auto [row_begin, row_end] = range(rows);
  auto [col_begin, col_end] = range(cols);
  const auto kind = *rc::gen::inRange(0, 6);
  if (kind == 0) row_begin = 0, row_end = rows;
  if (kind == 1) col_begin = 0, col_end = cols;
  return {row_begin, row_end, col_begin, col_end};
}

/// What a walk visits, as a bitmap; checks that it stays inside, overlaps nothing, and that rows ascend.
template <class Walk>
bitmap visited(const wr::rect& part, Walk&& walk) {
  bitmap seen;
  std::int64_t last_row = 0;
  walk([&](const wr::rect& found) {
    RC_ASSERT(!found.empty());
    RC_ASSERT(part.contains(found));
    RC_ASSERT(seen.count(found) == 0);
    RC_ASSERT(found.row_begin >= last_row);
    last_row = found.row_begin;
    seen.fill(found, true);
  });
  return seen;
}

void check_equal(const wr::coverage& covered, bitmap& model, const wr::rect& probe) {
  const std::int64_t count = model.count(probe);
  RC_ASSERT(covered.empty() == (model.count({0, rows, 0, cols}) == 0));
  RC_ASSERT(covered.overlaps(probe) == (count > 0));
  RC_ASSERT(covered.contains(probe) == (count == probe.elements()));
  bitmap here = visited(probe, [&](auto&& visit) { covered.for_each_covered(probe, visit); });
  bitmap gone = visited(probe, [&](auto&& visit) { covered.for_each_missing(probe, visit); });
  for (std::int64_t r = probe.row_begin; r < probe.row_end; ++r)
    for (std::int64_t c = probe.col_begin; c < probe.col_end; ++c) {
      RC_ASSERT(here.at(r, c) == model.at(r, c));
      RC_ASSERT(gone.at(r, c) != model.at(r, c));
    }
}

int rectangles(const wr::coverage& covered) {
  int count = 0;
  const std::int64_t all = std::int64_t{1} << 40;
  covered.for_each_covered({0, all, 0, all}, [&](const wr::rect&) { ++count; });
  return count;
}

}  // namespace

TEST_CASE("any sequence of inserts and erases equals a bitmap") {
  property("insert, erase, overlaps, contains, for_each_covered, for_each_missing", [] {
    wr::coverage covered;
    bitmap model;
    const auto steps = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(1, 40));
    for (int step = 0; step < steps; ++step) {
      const wr::rect part = any_rect();
      const auto take = *rc::gen::inRange(0, 3) == 0;
      std::vector<wr::rect> parts;  // those that the requirement of insert or erase allows
      const auto keep = [&](const wr::rect& found) { parts.push_back(found); };
      if (model.count(part) == (take ? part.elements() : 0)) {
        keep(part);
      } else if (take) {
        covered.for_each_covered(part, keep);
      } else {
        covered.for_each_missing(part, keep);
      }
      for (const wr::rect& one : parts) {
        if (take) covered.erase(one);
        if (!take) covered.insert(one);
        model.fill(one, !take);
      }
      check_equal(covered, model, any_rect());
    }
    check_equal(covered, model, {0, rows, 0, cols});
    covered.clear();
    RC_ASSERT(covered.empty());
  });
}

TEST_CASE("tiles of a grid, in any order, merge into one rectangle; erased in any order, nothing is left") {
  property("grid", [] {
    const auto tall = *rc::gen::inRange<std::int64_t>(1, 5), wide = *rc::gen::inRange<std::int64_t>(1, 5);
    std::vector<wr::rect> tiles;
    for (std::int64_t r = 0; r < rows; r += tall)
      for (std::int64_t c = 0; c < cols; c += wide)
        tiles.push_back({r, std::min(r + tall, rows), c, std::min(c + wide, cols)});
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    std::shuffle(tiles.begin(), tiles.end(), random);
    wr::coverage covered;
    for (const wr::rect& tile : tiles) {
      RC_ASSERT(!covered.overlaps(tile));
      covered.insert(tile);
      RC_ASSERT(covered.contains(tile));
    }
    RC_ASSERT(rectangles(covered) == 1);
    RC_ASSERT((covered.contains({0, rows, 0, cols})));
    std::shuffle(tiles.begin(), tiles.end(), random);
    for (const wr::rect& tile : tiles) covered.erase(tile);
    RC_ASSERT(covered.empty());
  });
}

TEST_CASE("bands of equal columns merge: what is kept grows with the holes, not with the pieces") {
  wr::coverage covered;
  for (std::int64_t r = 0; r < 1000; r += 2) covered.insert({r, r + 1, 0, 8});
  CHECK(rectangles(covered) == 500);
  for (std::int64_t r = 1; r < 1000; r += 2) covered.insert({r, r + 1, 0, 8});
  CHECK(rectangles(covered) == 1);
  covered.erase({500, 501, 3, 4});  // a hole of one element: above, beside it on both sides, below
  CHECK(rectangles(covered) == 4);
  covered.insert({500, 501, 3, 4});
  CHECK(rectangles(covered) == 1);
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
// Asks malloc, not `operator new`, of which a program has one replacement only (tests/heap_counter.hpp). A sanitizer's
// malloc tells nothing: then there is nothing to check.
TEST_CASE("one rectangle uses no heap, and a set that has merged into one gives it back") {
  const auto held = [] { return static_cast<std::int64_t>(mallinfo2().uordblks); };
  wr::coverage covered;
  const std::int64_t before = held();
  for (std::int64_t r = 0; r < 10000; ++r) covered.insert({r, r + 1, 0, 8});  // rows in order
  const std::int64_t in_order = held();
  covered.clear();
  for (std::int64_t c = 10000; c-- > 0;) covered.insert({0, 8, c, c + 1});  // columns, from the right
  const std::int64_t columns = held();
  covered.clear();
  for (std::int64_t r = 0; r < 10000; r += 2) covered.insert({r, r + 1, 0, 8});
  const std::int64_t holes = held();
  for (std::int64_t r = 1; r < 10000; r += 2) covered.insert({r, r + 1, 0, 8});
  const std::int64_t merged = held();
  std::vector<wr::coverage> copies;  // of a single rectangle, copies need no heap either
  copies.reserve(1000);
  const std::int64_t reserved = held();
  copies.assign(1000, covered);
  const std::int64_t copied = held();
  if (holes == before) return;
  CHECK(in_order == before);
  CHECK(columns == before);
  CHECK(holes - before > 5000 * 64);
  CHECK(merged - before < 4096);  // what malloc itself caches
  CHECK(copied - reserved < 4096);
  CHECK(rectangles(covered) == 1);
}
#endif

TEST_CASE("a copy is a set of its own") {
  wr::coverage a;
  a.insert({0, 1, 0, 1});
  a.insert({2, 3, 0, 1});
  wr::coverage b = a;
  b.erase({2, 3, 0, 1});
  CHECK(a.contains({2, 3, 0, 1}));
  CHECK_FALSE(b.overlaps({2, 3, 0, 1}));
}

TEST_CASE("empty parts change nothing, overlap nothing and are contained anywhere") {
  wr::coverage covered;
  covered.insert({3, 3, 0, 5});
  covered.insert({0, 5, 2, 2});
  CHECK(covered.empty());
  CHECK(covered.contains({4, 4, 0, 9}));
  CHECK_FALSE(covered.overlaps({0, 0, 0, 0}));
  covered.insert({0, 2, 0, 2});
  covered.erase({1, 1, 0, 2});
  CHECK(covered.contains({0, 2, 0, 2}));
}

TEST_CASE("coordinates beyond 32 bits") {
  const std::int64_t far = std::int64_t{1} << 40;
  wr::coverage covered;
  covered.insert({far, far + 2, far, far + 3});
  covered.insert({far + 2, far + 4, far, far + 3});
  CHECK(covered.contains({far, far + 4, far, far + 3}));
  CHECK_FALSE(covered.overlaps({0, far, 0, far + 3}));
}

TEST_CASE("100,000 single rows in random order take less than a second") {
  constexpr std::int64_t count = 100000;
  std::vector<std::int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  const auto begin = std::chrono::steady_clock::now();
  wr::coverage covered;
  for (const std::int64_t row : order) {
    const wr::rect part{row, row + 1, 0, 7168};
    REQUIRE(!covered.overlaps(part));
    covered.insert(part);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(covered.contains({0, count, 0, 7168}));
  CHECK(rectangles(covered) == 1);
  CHECK(took.count() < 1.0);
}
