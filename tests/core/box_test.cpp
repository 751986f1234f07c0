// Boxes in a tensor's own dims, rectangles in its matrix form, and the way from one to the other.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/core/box.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

wr::shape shape_of(const std::vector<std::int64_t>& dims) {
  return wr::shape(std::span<const std::int64_t>(dims.data(), dims.size()));
}

/// A number of [begin, end), all of them as likely in the first cases as in the last.
std::int64_t pick(std::int64_t begin, std::int64_t end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(begin, end));
}

/// A tensor of rank 0 to 5 and a box inside it; zero dims and empty boxes among them.
struct cut_tensor {
  wr::shape tensor = {};
  wr::box part = {};
};

cut_tensor any_cut() {
  const auto rank = pick(0, 6);
  std::vector<std::int64_t> dims, first, size;
  for (int dim = 0; dim < rank; ++dim) {
    dims.push_back(pick(0, 20) == 0 ? 0 : pick(1, 6));
    const bool whole = pick(0, 2) == 0;
    first.push_back(whole ? 0 : pick(0, dims.back() + (pick(0, 9) == 0 || dims.back() == 0 ? 1 : 0)));
    size.push_back(whole ? dims.back() : pick(std::min<std::int64_t>(1, dims.back() - first.back()), dims.back() - first.back() + 1));
  }
  cut_tensor cut{shape_of(dims), {}};
  if (pick(0, 8) != 0) cut.part = wr::box(shape_of(first), shape_of(size));
  return cut;
}

/// Position of the element with row-major index `linear` in each dim.
std::vector<std::int64_t> position_of(std::int64_t linear, const wr::shape& tensor) {
  std::vector<std::int64_t> position(static_cast<std::size_t>(tensor.rank()));
  for (int dim = tensor.rank() - 1; dim >= 0; --dim) {
    position[static_cast<std::size_t>(dim)] = linear % tensor[dim];
    linear /= tensor[dim];
  }
  return position;
}

bool inside(const std::vector<std::int64_t>& position, const wr::box& part) {
  if (part.whole) return true;
  for (std::size_t dim = 0; dim < position.size(); ++dim) {
    const std::int64_t from = part.offset[static_cast<int>(dim)];
    if (position[dim] < from || position[dim] >= from + part.extent[static_cast<int>(dim)]) return false;
  }
  return true;
}

}  // namespace

static_assert(wr::rect{0, 4, 2, 5}.elements() == 12 && wr::rect{0, 4, 2, 5}.rows() == 4 && wr::rect{0, 4, 2, 5}.cols() == 3);
static_assert(wr::rect{}.empty() && wr::rect{3, 3, 0, 9}.empty() && wr::rect{0, 9, 4, 4}.empty());
static_assert(wr::rect{5, 2, 5, 2}.elements() == 0);  // turned inside out: nothing, not nine

TEST_CASE("rectangles: intersect and contains agree with their elements") {
  property("element by element", [] {
    const auto any_rect = [] {
      const auto at = [] { return *rc::gen::inRange<std::int64_t>(0, 7); };
      return wr::rect{at(), at(), at(), at()};
    };
    const wr::rect a = any_rect(), b = any_rect(), both = wr::intersect(a, b);
    const auto has = [](const wr::rect& part, std::int64_t r, std::int64_t c) {
      return part.row_begin <= r && r < part.row_end && part.col_begin <= c && c < part.col_end;
    };
    std::int64_t elements = 0;
    bool contained = true;
    for (std::int64_t r = 0; r < 7; ++r)
      for (std::int64_t c = 0; c < 7; ++c) {
        RC_ASSERT(has(both, r, c) == (has(a, r, c) && has(b, r, c)));
        elements += has(a, r, c) ? 1 : 0;
        contained = contained && (!has(b, r, c) || has(a, r, c));
      }
    RC_ASSERT(a.elements() == elements);
    RC_ASSERT(a.empty() == (elements == 0));
    RC_ASSERT(a.contains(b) == contained);
  });
}

TEST_CASE("rows and along take a slice of one dim") {
  constexpr wr::shape tensor{4, 3, 2};
  constexpr wr::box rows = wr::box::rows(tensor, 1, 3);
  static_assert(rows.offset == wr::shape{1, 0, 0} && rows.extent == wr::shape{2, 3, 2} && !rows.whole);
  constexpr wr::box last = wr::box::along(2, tensor, 1, 2);
  static_assert(last.offset == wr::shape{0, 0, 1} && last.extent == wr::shape{4, 3, 1});
  CHECK(wr::fits(rows, tensor));
  CHECK(wr::fits(last, tensor));
  CHECK(wr::box{}.whole);
}

TEST_CASE("a box fits only where it lies inside") {
  const wr::shape tensor{4, 6};
  CHECK(wr::fits(wr::box{}, tensor));
  CHECK(wr::fits({{0, 0}, {4, 6}}, tensor));
  CHECK(wr::fits({{4, 6}, {0, 0}}, tensor));  // empty at the far corner
  CHECK_FALSE(wr::fits({{0, 1}, {4, 6}}, tensor));
  CHECK_FALSE(wr::fits({{5, 0}, {0, 6}}, tensor));
  CHECK_FALSE(wr::fits({{-1, 0}, {2, 6}}, tensor));
  CHECK_FALSE(wr::fits({{0, 0}, {-1, 6}}, tensor));
  CHECK_FALSE(wr::fits({{0}, {4}}, tensor));         // another rank
  CHECK_FALSE(wr::fits({{0, 0, 0}, {4, 6, 1}}, tensor));
  CHECK_FALSE(wr::fits({{0, 0}, {4}}, tensor));      // of its own two halves
}

TEST_CASE("a box with a side that overflows does not fit") {
  const wr::shape tensor{4, 6};
  CHECK_FALSE(wr::fits({{1, 0}, {huge, 6}}, tensor));
  CHECK_FALSE(wr::fits({{huge, 0}, {huge, 6}}, tensor));
  CHECK_FALSE(wr::fits({{std::numeric_limits<std::int64_t>::min(), 0}, {1, 1}}, tensor));
  CHECK_FALSE(wr::fits({{huge - 1, 0}, {2, 1}}, wr::shape{huge, 6}));
  CHECK(wr::fits({{huge - 1, 0}, {1, 1}}, wr::shape{huge, 6}));
}

TEST_CASE("a scalar has the whole and one box") {
  CHECK(wr::fits({wr::shape{}, wr::shape{}}, wr::shape{}));
  CHECK_FALSE(wr::fits({wr::shape{0}, wr::shape{1}}, wr::shape{}));
}

TEST_CASE("for_each_rect covers each element of the box once and no other") {
  property("partition", [] {
    const cut_tensor cut = any_cut();
    RC_ASSERT(wr::fits(cut.part, cut.tensor));
    const std::int64_t rows = cut.tensor.rows(), cols = cut.tensor.cols();
    for (int run_begin = 1; run_begin <= std::max(1, cut.tensor.rank()); ++run_begin) {
      std::vector<int> times(static_cast<std::size_t>(cut.tensor.elements()), 0);
      wr::for_each_rect(cut.part, cut.tensor, run_begin, [&](const wr::rect& found, const wr::shape&) {
        RC_ASSERT(!found.empty());
        RC_ASSERT((wr::rect{0, rows, 0, cols}.contains(found)));
        for (std::int64_t r = found.row_begin; r < found.row_end; ++r)
          for (std::int64_t c = found.col_begin; c < found.col_end; ++c) ++times[static_cast<std::size_t>(r * cols + c)];
      });
      for (std::int64_t i = 0; i < cut.tensor.elements(); ++i)
        RC_ASSERT(times[static_cast<std::size_t>(i)] == (inside(position_of(i, cut.tensor), cut.part) ? 1 : 0));
    }
  });
}

TEST_CASE("for_each_rect says where in the box each rectangle starts, and how far a run goes") {
  property("index, run, and no more rectangles than needed", [] {
    const cut_tensor cut = any_cut();
    const int rank = cut.tensor.rank();
    const auto run_begin = static_cast<int>(pick(1, std::max(2, rank + 1)));
    const wr::shape size = cut.part.whole ? cut.tensor : cut.part.extent;
    RC_PRE(size.elements() > 0);
    int innermost_cut = 0;
    for (int dim = 1; dim < rank; ++dim)
      if (size[dim] != cut.tensor[dim]) innermost_cut = dim;
    const int first_dim = std::min(std::max(run_begin, innermost_cut), rank - 1);  // of those one rectangle covers
    std::int64_t expected = 1, calls = 0;
    for (int dim = 1; dim < first_dim; ++dim) expected *= size[dim];
    const std::int64_t cols = cut.tensor.cols();
    wr::for_each_rect(cut.part, cut.tensor, run_begin, [&](const wr::rect& found, const wr::shape& index) {
      ++calls;
      RC_ASSERT(index.rank() == rank);
      const auto first = position_of(found.row_begin * cols + found.col_begin, cut.tensor);
      const auto last = position_of((found.row_end - 1) * cols + found.col_end - 1, cut.tensor);
      for (int dim = 0; dim < rank; ++dim) {
        const std::int64_t from = cut.part.whole ? 0 : cut.part.offset[dim];
        RC_ASSERT(first[static_cast<std::size_t>(dim)] == from + index[dim]);
        if (dim > 0 && dim < first_dim)
          RC_ASSERT(first[static_cast<std::size_t>(dim)] == last[static_cast<std::size_t>(dim)]);
      }
    });
    RC_ASSERT(calls == expected);
  });
}

TEST_CASE("a whole matrix is one rectangle, whatever its rank") {
  for (const wr::shape& tensor : {wr::shape{}, wr::shape{5}, wr::shape{4, 6}, wr::shape{2, 3, 4, 5, 6}}) {
    int calls = 0;
    wr::for_each_rect(wr::box{}, tensor, 1, [&](const wr::rect& found, const wr::shape&) {
      ++calls;
      CHECK(found == wr::rect{0, tensor.rows(), 0, tensor.cols()});
    });
    CHECK(calls == 1);
  }
}

TEST_CASE("nothing in a box, no rectangle") {
  for (const wr::shape& tensor : {wr::shape{0}, wr::shape{0, 3}, wr::shape{3, 0}, wr::shape{2, 0, 3}})
    wr::for_each_rect(wr::box{}, tensor, 1, [](const wr::rect&, const wr::shape&) { FAIL("a rectangle of nothing"); });
  wr::for_each_rect({{1, 2}, {2, 0}}, {4, 6}, 1,
                    [](const wr::rect&, const wr::shape&) { FAIL("a rectangle of nothing"); });
}

TEST_CASE("spelled with half-open ranges and with offset + extent") {
  CHECK(wr::to_string(wr::rect{128, 256, 0, 64}) == "rows 128..256, cols 0..64");
  CHECK(wr::to_string(wr::box({128, 0}, {64, 7168})) == "[128, 0] + [64, 7168]");
  CHECK(wr::to_string(wr::box{}) == "whole");
}
