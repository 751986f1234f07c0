// Fp8BlockMoe: stacked experts that stay block FP8.
#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/fp8_block_moe.hpp>

namespace wr = wreload;

namespace {

wr::extents experts_of(std::int64_t hidden, std::int64_t width, const wr::expert_slots& slots, wr::tensor_parallel tp = {}) {
  return {.shards = {{.module = "gate_proj", .rows = width, .cols = hidden}, {.module = "up_proj", .rows = width, .cols = hidden},
                     {.module = "down_proj", .rows = hidden, .cols = width, .split = wr::parallel::row}},
          .split = wr::parallel::column, .tp = tp, .experts = slots};
}

}  // namespace

TEST_CASE("Qwen3-30B-A3B: 128 experts at t = 1 and 2; t = 4 gives 192 rows and is refused by name") {
  for (const int t : {1, 2}) {
    wr::layer_plan plan;
    const wr::status error = wr::plan_layer(wr::Fp8BlockMoe::specs, "mlp.experts", experts_of(2048, 768, wr::expert_slots::all(128), {t, t - 1}), plan);
    REQUIRE_MESSAGE(error.ok(), error.message());
    CHECK(plan.params[0].extents == wr::shape{128, 1536 / t, 2048});
    CHECK(plan.params[1].extents == wr::shape{128, 12 / t, 16});
    CHECK(plan.params[2].extents == wr::shape{128, 2048, 768 / t});
    CHECK(plan.params[3].extents == wr::shape{128, 16, 6 / t});
    CHECK(plan.sources[static_cast<std::size_t>(plan.params[0].landings[0].source)].name == "mlp.experts.0.gate_proj.weight");  // w1 above w3
  }
  for (int rank = 0; rank < 4; ++rank) {
    wr::layer_plan plan;
    const wr::status error = wr::plan_layer(wr::Fp8BlockMoe::specs, "mlp.experts", experts_of(2048, 768, wr::expert_slots::all(128), {4, rank}), plan);
    CHECK(error.code == wr::error_code::bad_layout);
    CHECK(error.message().starts_with("mlp.experts.N.gate_proj: expected whole 128x128 scale blocks a rank and shard, got rows "));
  }
}

TEST_CASE("a width that ends inside a block would put up_proj's rows in gate_proj's block") {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(wr::Fp8BlockMoe::specs, "x", experts_of(256, 192, wr::expert_slots::all(2)), plan);
  CHECK(error.message().starts_with("x.N.gate_proj: expected whole 128x128"));
}

TEST_CASE("expert-parallel ranks and replicas; hidden sizes may end inside a block") {
  wr::layer_plan plan;
  REQUIRE(wr::plan_layer(wr::Fp8BlockMoe::specs, "x", experts_of(300, 256, {4, {3, 0, 3}}), plan).ok());
  CHECK(plan.params[0].extents == wr::shape{3, 512, 300});
  CHECK(plan.params[1].extents == wr::shape{3, 4, 3});
  CHECK(plan.params[3].extents == wr::shape{3, 3, 2});
  CHECK(plan.params[2].landings[0].source == plan.params[2].landings[2].source);
  CHECK(plan.sources.size() == 4 * 6);
}

TEST_CASE("MN-major scales per expert") {
  wr::layer_plan plan;
  REQUIRE(wr::plan_layer(wr::Fp8BlockMoeMnMajor::specs, "mlp.experts", experts_of(2048, 768, wr::expert_slots::all(128), {2, 1}), plan).ok());
  REQUIRE(plan.params.size() == 6);
  CHECK(plan.params[4].name == "mlp.experts.w13_weight_scale_inv_mn_major");
  CHECK(plan.params[4].extents == wr::shape{128, 16, 8});
  CHECK(plan.params[4].pad_bytes() == 128 * 16 * 2 * 4);  // bound
  CHECK(plan.params[5].extents == wr::shape{128, 3, 16});
  CHECK(plan.params[5].pad_bytes() == 0);  // an alias
}
