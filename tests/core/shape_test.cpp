// Shapes: extents, their matrix form, and products that do not fit.
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/core/shape.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
}

static_assert(wr::ceil_div(0, 128) == 0 && wr::ceil_div(1, 128) == 1 && wr::ceil_div(128, 128) == 1);
static_assert(wr::ceil_div(576, 128) == 5);  // 4.5 blocks
static_assert(wr::shape{}.rank() == 0 && wr::shape{}.elements() == 1 && wr::shape{}.rows() == 1);
static_assert(wr::shape{4, 3, 2}.rows() == 4 && wr::shape{4, 3, 2}.cols() == 6 && wr::shape{4, 3, 2}.elements() == 24);
static_assert(wr::shape{5}.rows() == 5 && wr::shape{5}.cols() == 1);
static_assert(wr::shape{0, 7}.elements() == 0 && wr::shape{7, 0}.elements() == 0);

TEST_CASE("ceil_div rounds up") {
  property("smallest count of blocks that covers", [] {
    const auto value = *rc::gen::inRange<std::int64_t>(0, 100000);
    const auto block = *rc::gen::inRange<std::int64_t>(1, 300);
    const std::int64_t blocks = wr::ceil_div(value, block);
    RC_ASSERT(blocks * block >= value);
    RC_ASSERT((blocks - 1) * block < value);
  });
}

TEST_CASE("checked_multiply tells a product that does not fit") {
  std::int64_t product = 0;
  CHECK(wr::checked_multiply(0, huge, product));
  CHECK(product == 0);
  CHECK(wr::checked_multiply(1, huge, product));
  CHECK(product == huge);
  CHECK_FALSE(wr::checked_multiply(2, huge, product));
  CHECK_FALSE(wr::checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31, product));
  CHECK(wr::checked_multiply(std::int64_t{1} << 31, std::int64_t{1} << 31, product));
  CHECK(product == std::int64_t{1} << 62);
}

TEST_CASE("a shape is valid while 8 bytes an element fit") {
  CHECK(wr::shape{}.valid());
  CHECK(wr::shape{0}.valid());
  CHECK(wr::shape{7168, 16384}.valid());
  CHECK(wr::shape{(std::int64_t{1} << 60) - 1}.valid());
  CHECK_FALSE(wr::shape{std::int64_t{1} << 60}.valid());
  CHECK_FALSE(wr::shape{huge}.valid());
  CHECK_FALSE(wr::shape{-1}.valid());
  CHECK_FALSE(wr::shape{-1, -1}.valid());  // a positive product
  CHECK_FALSE(wr::shape{3, std::numeric_limits<std::int64_t>::min()}.valid());
  CHECK_FALSE(wr::shape{std::int64_t{1} << 31, std::int64_t{1} << 31}.valid());
}

TEST_CASE("a zero dim excuses no overflow of the others") {
  CHECK_FALSE(wr::shape{0, huge, huge}.valid());
  CHECK_FALSE(wr::shape{huge, 0, huge}.valid());
  CHECK_FALSE(wr::shape{huge, huge, 0}.valid());
  CHECK_FALSE(wr::shape{0, -1}.valid());
  CHECK(wr::shape{0, 0, 0}.valid());
}

TEST_CASE("rows times cols are the elements, and dims are what was given") {
  property("matrix form", [] {
    const auto dims = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 9));
    RC_PRE(dims.size() <= static_cast<std::size_t>(wr::max_rank));
    const wr::shape extents(std::span<const std::int64_t>(dims.data(), dims.size()));
    std::int64_t product = 1;
    for (const std::int64_t dim : dims) product *= dim;
    RC_ASSERT(extents.elements() == product);
    RC_ASSERT(extents.rows() * extents.cols() == product);
    RC_ASSERT(extents.rank() == static_cast<int>(dims.size()));
    RC_ASSERT(std::vector<std::int64_t>(extents.dims().begin(), extents.dims().end()) == dims);
  });
}

TEST_CASE("equality looks at rank and dims, not at what lies behind them") {
  CHECK(wr::shape{2, 3} == wr::shape{2, 3});
  CHECK_FALSE(wr::shape{2, 3} == wr::shape{3, 2});
  CHECK_FALSE(wr::shape{2, 3} == wr::shape{2, 3, 1});
  CHECK_FALSE(wr::shape{} == wr::shape{1});
  CHECK_FALSE(wr::shape{} == wr::shape{0});
}

TEST_CASE("eight dims are the most") {
  wr::shape extents{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(extents.rank() == wr::max_rank);
  extents.push_back(9);
  CHECK(extents.rank() == wr::max_rank);
  CHECK(extents[7] == 8);
}

TEST_CASE("spelled like Python") {
  CHECK(wr::to_string(wr::shape{}) == "[]");
  CHECK(wr::to_string(wr::shape{7}) == "[7]");
  CHECK(wr::to_string(wr::shape{4096, 14336}) == "[4096, 14336]");
  CHECK(wr::to_string(wr::shape{1024, 3, 2, 14, 14}) == "[1024, 3, 2, 14, 14]");
}
