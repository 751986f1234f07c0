// Nvfp4Linear: names, sources and sizes of public models.
#include <doctest/doctest.h>

#include <wreload/layout/storage_plan.hpp>
#include <wreload/layouts/nvfp4_linear.hpp>

namespace wr = wreload;

namespace {

template <class Layout>
std::vector<wr::storage_need> needs_of(const wr::extents& sizes) {
  wr::status error;
  const auto needs = wr::storage_plan<Layout>("layer", sizes, &error);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return needs;
}

}  // namespace

TEST_CASE("six allocations: the block scales have one, under the kernel's name") {
  const auto needs = needs_of<wr::Nvfp4Linear>(wr::extents::matrix("layer", 128, 64));
  std::vector<std::string> names;
  for (const wr::storage_need& need : needs) names.push_back(need.name.substr(6));
  CHECK(names == std::vector<std::string>{"weight", "weight_scale_2", "input_scale", "weight_scale_interleaved", "alpha", "input_scale_inv"});
  CHECK(wr::storage_count(wr::Nvfp4Linear::specs) == 6);
  CHECK(needs[1].retired);
  CHECK(needs[0].type == wr::dtype::fp4_e2m1x2);
  CHECK(needs[3].type == wr::dtype::fp8_e4m3);
}

TEST_CASE("issue 4's sizes") {
  struct row { std::int64_t a, b, k; wr::shape cutlass, trtllm, scale; };
  for (const row& each : {row{128, 128, 128, {256, 64}, {256, 64}, {256, 8}}, row{96, 104, 80, {224, 48}, {256, 64}, {256, 8}},
                          row{160, 96, 192, {256, 96}, {256, 96}, {256, 12}}}) {
    const wr::extents sizes{.shards = {{.module = "a", .rows = each.a}, {.module = "b", .rows = each.b}}, .inner = {each.k / 2}};
    CHECK(needs_of<wr::Nvfp4Linear>(sizes)[0].extents == each.cutlass);
    CHECK(needs_of<wr::Nvfp4LinearTrtllm>(sizes)[0].extents == each.trtllm);
    CHECK(needs_of<wr::Nvfp4Linear>(sizes)[3].extents == each.scale);
    CHECK(needs_of<wr::Nvfp4LinearTrtllm>(sizes)[3].extents == each.scale);
    CHECK(needs_of<wr::Nvfp4Linear>(sizes)[1].extents == wr::shape{2});
  }
}

TEST_CASE("Kimi-K2.5: the dense MLP of layer 0 and the shared expert, per rank") {
  for (const int t : {1, 4, 8}) {
    const wr::extents gate_up{.shards = {{.module = "gate_proj", .rows = 18432}, {.module = "up_proj", .rows = 18432}}, .inner = {3584}};
    const auto first = needs_of<wr::Nvfp4Linear>(gate_up.cut(wr::parallel::column, {t, t - 1}));
    CHECK(first[0].extents == wr::shape{36864 / t, 3584});
    CHECK(first[3].extents == wr::shape{36864 / t, 448});
    const auto down = needs_of<wr::Nvfp4Linear>(wr::extents::matrix("down_proj", 7168, 1024).cut(wr::parallel::row, {t, 0}));
    CHECK(down[0].extents == wr::shape{7168, 1024 / t});
    CHECK(down[3].extents == wr::shape{7168, 128 / t});
  }
}

TEST_CASE("compressed-tensors: weight_packed, and reciprocal global scales") {
  wr::layer_plan plan;
  REQUIRE(wr::plan_layer(wr::Nvfp4LinearCompressed::specs, "layer", wr::extents::matrix("l", 32, 16), plan).ok());
  REQUIRE(plan.sources.size() == 4);
  CHECK(plan.sources[0].spellings == std::vector<std::string>{"l.weight_packed"});
  CHECK(plan.sources[2].name == "l.weight_global_scale");
  CHECK(plan.sources[3].name == "l.input_global_scale");
}
