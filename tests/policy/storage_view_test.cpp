// StorageView: how checkpoint elements lie in a param's own bytes.
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layout/storage_plan.hpp>
#include <wreload/layouts/names.hpp>

namespace wr = wreload;

// The docstring's example.
using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>;
static_assert(view::converts && view::stored == wr::dtype::fp8_e4m3 && view::runtime == wr::dtype::bf16);
static_assert(!view::is_block_scale && view::block_rows == 0 && view::block_cols == 0);

// Without Over the storage is what is stored.
static_assert(!wr::StorageView<wr::bf16>::converts && wr::StorageView<wr::bf16>::runtime == wr::dtype::bf16);
static_assert(!wr::StorageView<wr::fp8_e4m3, wr::Over<wr::fp8_e4m3>>::converts);
static_assert(wr::StorageView<wr::fp4_e2m1x2>::stored == wr::dtype::fp4_e2m1x2);

// Each conversion that the library makes.
static_assert(wr::StorageView<wr::fp8_e4m3, wr::Over<wr::fp16>>::converts);
static_assert(wr::StorageView<wr::fp8_e4m3, wr::Over<wr::fp32>>::converts);
static_assert(wr::StorageView<wr::fp8_e5m2, wr::Over<wr::bf16>>::converts);
static_assert(wr::StorageView<wr::fp8_e5m2, wr::Over<wr::fp16>>::converts);
static_assert(wr::StorageView<wr::fp8_e5m2, wr::Over<wr::fp32>>::converts);

namespace {

struct Fp8OverFp16
    : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e5m2, wr::Over<wr::fp16>>,
                                wr::ScaledBy<wr::names::weight_scale>>,
                      wr::Param<wr::names::weight_scale, wr::BlockScale<2, 2, wr::bf16>, wr::Retired>> {};
struct KeptFp8
    : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3>, wr::ScaledBy<wr::names::weight_scale>>,
                      wr::Param<wr::names::weight_scale, wr::BlockScale<128, 128, wr::fp32>>> {};

}  // namespace

TEST_CASE("a view over a wider dtype asks for the wider dtype's bytes, and no more") {
  wr::status error;
  const auto needs = wr::storage_plan<Fp8OverFp16>("layer", wr::extents::matrix("layer", 5, 7), &error);
  REQUIRE(error.ok());
  CHECK(needs[0].type == wr::dtype::fp16);
  CHECK(needs[0].row_stride_bytes == 14);
  CHECK(needs[0].bytes == 70);
  CHECK(Fp8OverFp16::specs[0].accepted == (wr::dtype_set(wr::dtype::fp8_e5m2) | wr::dtype::fp16));
}

TEST_CASE("a view that does not convert may still be scaled") {
  wr::status error;
  const auto needs = wr::storage_plan<KeptFp8>("layer", wr::extents::matrix("layer", 200, 300), &error);
  REQUIRE(error.ok());
  CHECK(needs[0].bytes == 200 * 300);
  CHECK(needs[1].extents == wr::shape{2, 3});
  CHECK_FALSE(KeptFp8::specs[0].converts());
  CHECK(KeptFp8::specs[0].accepted == wr::dtype_set(wr::dtype::fp8_e4m3));
}
