// Fp8DequantMoe: stacked experts of public models, planned without allocating.
#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/fp8_dequant_moe.hpp>

namespace wr = wreload;

namespace {

wr::extents experts_of(std::int64_t hidden, std::int64_t width, const wr::expert_slots& slots) {
  return {.shards = {{.module = "gate_proj", .rows = width, .cols = hidden},
                     {.module = "up_proj", .rows = width, .cols = hidden},
                     {.module = "down_proj", .rows = hidden, .cols = width, .split = wr::parallel::row}},
          .experts = slots};
}

wr::layer_plan plan_of(const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(wr::Fp8DequantMoe::specs, "mlp.experts", sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return plan;
}

std::string source_of(const wr::layer_plan& plan, std::size_t param, std::size_t landing) {
  return plan.sources[static_cast<std::size_t>(plan.params[param].landings[landing].source)].name;
}

}  // namespace

TEST_CASE("four params: gate above up, down, and a grid for each") {
  const auto plan = plan_of(experts_of(256, 128, wr::expert_slots::all(2)));
  REQUIRE(plan.params.size() == 4);
  CHECK(plan.params[0].name == "mlp.experts.w13_weight");
  CHECK(plan.params[0].extents == wr::shape{2, 256, 256});
  CHECK(plan.params[1].extents == wr::shape{2, 2, 2});
  CHECK(plan.params[2].extents == wr::shape{2, 256, 128});
  CHECK(plan.params[3].extents == wr::shape{2, 2, 1});
  CHECK(source_of(plan, 0, 0) == "mlp.experts.0.gate_proj.weight");
  CHECK(source_of(plan, 0, 1) == "mlp.experts.0.up_proj.weight");
  CHECK(source_of(plan, 0, 2) == "mlp.experts.1.gate_proj.weight");
  CHECK(source_of(plan, 1, 1) == "mlp.experts.0.up_proj.weight_scale_inv");
  CHECK(source_of(plan, 2, 1) == "mlp.experts.1.down_proj.weight");
  CHECK(source_of(plan, 3, 1) == "mlp.experts.1.down_proj.weight_scale_inv");
  CHECK(plan.sources[1].spellings == std::vector<std::string>{"mlp.experts.0.gate_proj.weight_scale"});
}

TEST_CASE("DeepSeek-V3: 256 experts at t = 8") {
  const auto plan = plan_of(experts_of(7168, 2048, wr::expert_slots::all(256)).cut(wr::parallel::column, {8, 5}));
  CHECK(plan.params[0].extents == wr::shape{256, 512, 7168});
  CHECK(plan.params[1].extents == wr::shape{256, 4, 56});
  CHECK(plan.params[2].extents == wr::shape{256, 7168, 256});
  CHECK(plan.params[3].extents == wr::shape{256, 56, 2});
  CHECK(plan.sources.size() == 256 * 6);
}

TEST_CASE("Qwen3: 192 rows a rank at t = 4 work, because this layout dequantises") {  // vllm#17569 refuses it
  for (int rank = 0; rank < 4; ++rank) {
    const auto plan = plan_of(experts_of(2048, 768, wr::expert_slots::all(2)).cut(wr::parallel::column, {4, rank}));
    CHECK(plan.params[0].extents == wr::shape{2, 384, 2048});
    CHECK(plan.params[0].landings[0].row_phase == rank * 192 % 128);
    CHECK(plan.params[1].landings[0].needed.row_begin == rank * 192 / 128);
    CHECK(plan.params[1].landings[0].needed.rows() == 2);
    CHECK(plan.params[1].extents == wr::shape{2, 4, 16});
    CHECK(plan.params[2].landings[0].col_phase == rank * 192 % 128);
    CHECK(plan.params[3].extents == wr::shape{2, 16, 2});
  }
}

TEST_CASE("a split that does not divide the width is refused") {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(wr::Fp8DequantMoe::specs, "mlp.experts",
                                          experts_of(2048, 768, wr::expert_slots::all(2)).cut(wr::parallel::column, {5, 0}), plan);
  CHECK(error.code == wr::error_code::bad_layout);
  CHECK(error.message().find("gate_proj: expected rows that 5 column-parallel parts divide, got 768") != std::string::npos);
}

TEST_CASE("GLM with the shared expert as a 289th slot, and expert-parallel ranks with replicas") {
  wr::expert_slots slots{289, {}};
  for (std::int64_t i = 0; i < 36; ++i) slots.local.push_back(36 * 7 + i);
  slots.local.push_back(288);
  slots.local.push_back(0);  // a busy expert's replica
  const auto plan = plan_of(experts_of(4096, 2048, slots));
  CHECK(plan.params[0].extents == wr::shape{38, 4096, 4096});
  CHECK(source_of(plan, 2, 36) == "mlp.experts.288.down_proj.weight");
  CHECK(source_of(plan, 2, 37) == "mlp.experts.0.down_proj.weight");
  CHECK(plan.sources.size() == 289 * 6);
}

TEST_CASE("a layer without a module that the layout reads is refused by its name") {
  wr::extents sizes = experts_of(256, 128, wr::expert_slots::all(1));
  sizes.shards.pop_back();
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(wr::Fp8DequantMoe::specs, "mlp.experts", sizes, plan);
  CHECK(error.message() == "mlp.experts.w2_weight: expected a shard for module down_proj, got none");
}
