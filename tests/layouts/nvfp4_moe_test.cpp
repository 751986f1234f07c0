// Nvfp4Moe: stacked experts of Kimi-K2.5 at TP 4, planned without allocating.
#include <stdexcept>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/nvfp4_moe.hpp>

namespace wr = wreload;

namespace {

wr::extents experts_of(std::int64_t hidden, std::int64_t width, const wr::expert_slots& slots) {
  return {.shards = {{.module = "gate_proj", .rows = width, .cols = hidden / 2}, {.module = "up_proj", .rows = width, .cols = hidden / 2},
                     {.module = "down_proj", .rows = hidden, .cols = width / 2, .split = wr::parallel::row}},
          .split = wr::parallel::column, .experts = slots};
}
template <class Layout>
wr::layer_plan plan_of(const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(Layout::specs, "mlp.experts", sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return plan;
}
const wr::planned_param& param(const wr::layer_plan& plan, std::string_view name) {
  for (const wr::planned_param& each : plan.params)
    if (each.spec.name == name) return each;
  throw std::logic_error("no param " + std::string(name));
}

}  // namespace

TEST_CASE_TEMPLATE("Kimi-K2.5 at TP 4: shapes, and about 15 GiB of block scales a rank without a second copy", Layout, wr::Nvfp4Moe, wr::Nvfp4MoeTrtllm) {
  std::int64_t saved = 0;
  for (int rank = 0; rank < 4; ++rank) {
    wr::extents sizes = experts_of(7168, 2048, wr::expert_slots::all(384));
    sizes.tp = {4, rank};
    const auto plan = plan_of<Layout>(sizes);
    CHECK(param(plan, "w13_weight").extents == wr::shape{384, 1024, 3584});
    CHECK(param(plan, "w2_weight").extents == wr::shape{384, 7168, 256});
    CHECK(param(plan, "w13_blockscale_swizzled").extents == wr::shape{384, 1024, 448});
    CHECK(param(plan, "w2_blockscale_swizzled").extents == wr::shape{384, 7168, 32});
    CHECK(param(plan, "w13_weight_scale_2").extents == wr::shape{384, 2});
    CHECK(param(plan, "w13_input_scale").extents == wr::shape{384, 2});
    CHECK(param(plan, "g1_alphas").extents == wr::shape{384});
    CHECK(param(plan, "w2_input_scale_quant").extents == wr::shape{});
    CHECK(plan.sources.size() == 384 * 12);
    saved = 0;
    for (const char* name : {"w13_blockscale_swizzled", "w2_blockscale_swizzled"}) {
      CHECK(param(plan, name).pad_bytes() == 0);  // so both are aliases
      saved += param(plan, name).bytes();
    }
  }
  CHECK(saved == 264241152);
  const double gib = static_cast<double>(60 * saved) / (1 << 30);  // 60 MoE layers
  CHECK(gib == doctest::Approx(14.77).epsilon(0.001));
}

TEST_CASE("up above gate in rows; gate before up in scalars") {
  const auto plan = plan_of<wr::Nvfp4Moe>(experts_of(64, 32, wr::expert_slots::all(2)));
  const auto source = [&](std::string_view name, std::size_t landing) { return plan.sources[static_cast<std::size_t>(param(plan, name).landings[landing].source)].name; };
  CHECK(source("w13_weight", 0) == "mlp.experts.0.up_proj.weight");
  CHECK(source("w13_weight", 1) == "mlp.experts.0.gate_proj.weight");
  CHECK(source("w13_blockscale_swizzled", 2) == "mlp.experts.1.up_proj.weight_scale");
  CHECK(source("w13_weight_scale_2", 0) == "mlp.experts.0.gate_proj.weight_scale_2");
  CHECK(source("w13_input_scale", 3) == "mlp.experts.1.up_proj.input_scale");
}

TEST_CASE("scales are padded once per expert, behind its rows; weights are not") {
  const auto plan = plan_of<wr::Nvfp4Moe>(experts_of(192, 80, wr::expert_slots::all(3)));
  CHECK(param(plan, "w13_weight").extents == wr::shape{3, 160, 96});
  CHECK(param(plan, "w13_blockscale_swizzled").extents == wr::shape{3, 256, 12});
  CHECK(param(plan, "w13_blockscale_swizzled").pad_bytes() == 3 * 96 * 12);
  CHECK(param(plan, "w13_blockscale_swizzled").landings[3].local_row == 256 + 80);
  CHECK(param(plan, "w2_blockscale_swizzled").extents == wr::shape{3, 256, 8});
}

TEST_CASE("experts without a gate; only TensorRT-LLM has g1_scale_c") {
  const auto has = [](std::span<const wr::param_spec> specs, std::string_view name) {
    for (const wr::param_spec& spec : specs)
      if (spec.name == name) return true;
    return false;
  };
  CHECK_FALSE(has(wr::Nvfp4MoeUngated::specs, "g1_alphas_up"));
  CHECK_FALSE(has(wr::Nvfp4Moe::specs, "g1_scale_c"));
  CHECK(has(wr::Nvfp4MoeTrtllm::specs, "g1_scale_c"));
  CHECK(has(wr::Nvfp4MoeUngatedTrtllm::specs, "g1_scale_c"));
  const auto plan = plan_of<wr::Nvfp4MoeUngated>(experts_of(64, 32, wr::expert_slots::all(2)));
  CHECK(param(plan, "w13_weight").extents == wr::shape{2, 32, 32});
  CHECK(param(plan, "w13_weight_scale_2").extents == wr::shape{2, 1});
}

TEST_CASE("expert-parallel ranks hold all input scales and their own everything else") {
  const auto plan = plan_of<wr::Nvfp4Moe>(experts_of(64, 32, {8, {2, 3}}));
  CHECK(param(plan, "w13_input_scale").extents == wr::shape{8, 2});
  CHECK(param(plan, "w2_input_scale").extents == wr::shape{8, 1});
  CHECK(param(plan, "w13_weight_scale_2").extents == wr::shape{2, 2});
  CHECK(param(plan, "g2_alphas").extents == wr::shape{2});
  CHECK(plan.sources.size() == 8 * 12);  // the others are known, and not needed
}
