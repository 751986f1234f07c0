// Fp8DequantLinear: real shapes of public models, planned without allocating.
#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/fp8_dequant_linear.hpp>

namespace wr = wreload;

namespace {

wr::layer_plan plan_of(const wr::extents& sizes, std::span<const wr::param_spec> specs = wr::Fp8DequantLinear::specs) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(specs, "layer", sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return plan;
}

const wr::planned_source& source_named(const wr::layer_plan& plan, const std::string& name) {
  for (const wr::planned_source& source : plan.sources)
    if (source.name == name) return source;
  FAIL("no source " << name);
  return plan.sources.front();
}

}  // namespace

TEST_CASE("a weight comes as FP8 or BF16, nothing else") {
  const auto plan = plan_of(wr::extents::matrix("o_proj", 256, 256));
  CHECK(wr::to_string(plan.params[0].spec.accepted) == "BF16 or F8_E4M3");
}

TEST_CASE("Qwen3: BF16 scales are accepted and widened to the FP32 of the runtime; E8M0 ones too") {
  const auto plan = plan_of(wr::extents::matrix("o_proj", 2048, 4096));
  CHECK(plan.params[1].spec.runtime == wr::dtype::fp32);
  CHECK(wr::to_string(plan.params[1].spec.accepted) == "BF16 or F32 or F8_E8M0");
  CHECK(source_named(plan, "o_proj.weight_scale_inv").extents == wr::shape{16, 32});
}

TEST_CASE("Quark spells the scale weight_scale") {
  const auto plan = plan_of({.shards = {{.module = "q", .rows = 128}, {.module = "k", .rows = 128}}, .inner = {128}});
  CHECK(source_named(plan, "q.weight_scale_inv").spellings == std::vector<std::string>{"q.weight_scale"});
  CHECK(source_named(plan, "k.weight_scale_inv").spellings == std::vector<std::string>{"k.weight_scale"});
}

TEST_CASE("DeepSeek-V3: every attention matrix, any t that divides it") {
  for (const int t : {1, 2, 4, 8, 16, 32, 64}) {
    const auto q_b = plan_of(wr::extents::matrix("q_b_proj", 24576, 1536).cut(wr::parallel::column, {t, t - 1}));
    CHECK(q_b.params[0].extents == wr::shape{24576 / t, 1536});
    CHECK(q_b.params[1].rows == wr::ceil_div(24576 / t, 128));
    const auto o = plan_of(wr::extents::matrix("o_proj", 7168, 16384).cut(wr::parallel::row, {t, t - 1}));
    CHECK(o.params[1].extents == wr::shape{56, 128 / t});
  }
}

TEST_CASE("DeepSeek-V3 dense MLP at t = 32: 576 rows a rank are served, with a phase") {  // sglang#3345 refuses it
  wr::extents sizes{.shards = {{.module = "gate_proj", .rows = 18432}, {.module = "up_proj", .rows = 18432}}, .inner = {7168}};
  const auto plan = plan_of(sizes.cut(wr::parallel::column, {32, 1}));
  CHECK(plan.params[0].landings[0].row_phase == 64);  // 576 = 4.5 blocks
  CHECK(plan.params[1].landings[0].needed == wr::rect{4, 9, 0, 56});
  CHECK(plan.params[1].extents == wr::shape{10, 56});
}

TEST_CASE("GLM: the indexer's wk in FP8 beside BF16 weights_proj") {
  const auto plan = plan_of({.shards = {{.module = "wk", .rows = 128}, {.module = "weights_proj", .rows = 32}}, .inner = {4096}});
  CHECK(plan.params[0].extents == wr::shape{160, 4096});
  CHECK(plan.params[1].extents == wr::shape{2, 32});  // weights_proj could come as FP8, too
}

TEST_CASE("GLM with rotary rows that no checkpoint tensor covers") {
  const auto plan = plan_of({.shards = {{.module = "q_a_proj", .rows = 1536}, {.module = "kv_a_proj_with_mqa", .rows = 576, .checkpoint_rows = 512}},
                             .inner = {4096}});
  CHECK(plan.params[0].extents == wr::shape{2112, 4096});
  REQUIRE(plan.params[0].pads.size() == 1);
  CHECK(plan.params[0].pads[0].local_row == 2048);
  CHECK(plan.params[1].extents == wr::shape{16, 32});
}

TEST_CASE("MiMo: a qkv fused on disk, cut into groups of 1856 rows, as one grid and as grids per group") {
  for (const bool per_group : {false, true}) {
    wr::extents sizes{.shards = {{.module = "qkv_proj", .rows = 14848}}, .inner = {4096}};
    if (per_group) sizes.shards[0].grid_rows = 1856;
    for (int rank = 0; rank < 8; ++rank) {
      const auto plan = plan_of(sizes.cut(wr::parallel::column, {8, rank}));
      const auto& weight = plan.params[0].landings.at(0);
      const auto& scale = plan.params[1].landings.at(0);
      CHECK(weight.row_phase == (per_group ? 0 : rank * 1856 % 128));
      CHECK(scale.needed.row_begin == (per_group ? rank * 15 : rank * 1856 / 128));
      CHECK(scale.needed.rows() == 15);
    }
    const auto whole = plan_of(sizes);
    CHECK(source_named(whole, "qkv_proj.weight_scale_inv").extents == wr::shape{per_group ? 120 : 116, 32});
    CHECK(whole.params[0].landings.size() == (per_group ? 8U : 1U));  // one landing a grid
  }
}

TEST_CASE("the same layer type serves decoder and multi-token-prediction layers") {
  for (const char* module : {"model.layers.3.self_attn.q_b_proj", "model.layers.61.self_attn.q_b_proj"}) {
    const auto plan = plan_of(wr::extents::matrix(module, 24576, 1536));
    CHECK(plan.sources[0].extents == wr::shape{24576, 1536});
  }
}

TEST_CASE("other block sizes are the layout's, not guessed") {
  const auto grid = [](std::span<const wr::param_spec> specs) {
    return plan_of(wr::extents::matrix("w", 576, 7168), specs).params[1].extents;
  };
  CHECK(grid(wr::Fp8DequantLinearOf<64, 64>::specs) == wr::shape{9, 112});
  CHECK(grid(wr::Fp8DequantLinearOf<1, 128>::specs) == wr::shape{576, 56});
  CHECK(grid(wr::Fp8DequantLinearOf<128, 1>::specs) == wr::shape{5, 7168});
}
