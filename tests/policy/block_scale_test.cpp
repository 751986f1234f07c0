// BlockScale and ScaledBy: grids of scales, and which weight they belong to.
#include <doctest/doctest.h>

#include <wreload/layout/storage_plan.hpp>
#include <wreload/layouts/names.hpp>

namespace wr = wreload;

// The docstring's example.
using grid = wr::BlockScale<128, 128, wr::fp32>;
static_assert(grid::block_rows == 128 && grid::runtime == wr::dtype::fp32);
static_assert(grid::is_block_scale && !grid::converts && grid::stored == grid::runtime);

// Every dtype of scale, and blocks that are rows, columns or odd.
static_assert(wr::BlockScale<1, 128, wr::bf16>::block_cols == 128);
static_assert(wr::BlockScale<128, 1, wr::fp8_ue8m0>::block_rows == 128);
static_assert(wr::BlockScale<1, 16, wr::fp8_e4m3>::stored == wr::dtype::fp8_e4m3);
static_assert(wr::BlockScale<2, 3, wr::fp32>::block_cols == 3);

// ScaledBy keeps the tag, not a string.
static_assert(std::is_same_v<wr::ScaledBy<wr::names::weight_scale>::name, wr::names::weight_scale>);

namespace {

template <int Rows, int Cols>
struct Blocks : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>,
                                          wr::ScaledBy<wr::names::weight_scale>>,
                                wr::Param<wr::names::weight_scale, wr::BlockScale<Rows, Cols, wr::fp32>, wr::Retired>> {};

template <int Rows, int Cols>
wr::shape grid_of(std::int64_t rows, std::int64_t cols) {
  wr::status error;
  const auto needs = wr::storage_plan<Blocks<Rows, Cols>>("layer", wr::extents::matrix("layer", rows, cols), &error);
  REQUIRE(error.ok());
  return needs[1].extents;
}

}  // namespace

TEST_CASE("one scale per started block, from the layout's block size and never from dividing shapes") {
  CHECK(grid_of<128, 128>(576, 7168) == wr::shape{5, 56});
  CHECK(grid_of<64, 64>(576, 7168) == wr::shape{9, 112});
  CHECK(grid_of<1, 128>(576, 7168) == wr::shape{576, 56});
  CHECK(grid_of<128, 1>(576, 7168) == wr::shape{5, 7168});
  CHECK(grid_of<128, 128>(1000, 1) == wr::shape{8, 1});  // TRT-Model-Connect#1115: not blocks of 125
  CHECK(grid_of<2, 3>(1, 1) == wr::shape{1, 1});
}
