// Plans of mapped, padded, aliased and computed params: every byte of storage belongs to one landing or one pad; what a
// cut or a map cannot give is refused by name.
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layout/describe.hpp>
#include <wreload/layouts/fp8_block_linear.hpp>
#include <wreload/layouts/fp8_block_moe.hpp>

#include "../update/nvfp4_engine.hpp"

namespace wr = wreload;
using namespace wreload::test;

namespace {

wr::layer_plan plan_of(std::span<const wr::param_spec> specs, const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(specs, "layer", sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return plan;
}
std::string refusal(std::span<const wr::param_spec> specs, const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(specs, "layer", sizes, plan);
  CHECK(error.code == wr::error_code::bad_layout);
  CHECK(plan.params.empty());
  return error.message();
}
const wr::planned_param& param(const wr::layer_plan& plan, std::string_view name) {
  for (const wr::planned_param& each : plan.params)
    if (each.spec.name == name) return each;
  throw std::logic_error("no param " + std::string(name));
}

/// Counts how often each byte of a param's storage is written by landings and pads. Empty: each once.
std::string coverage_of(const wr::planned_param& of) {
  std::vector<int> written(static_cast<std::size_t>(of.bytes()));
  const std::int64_t element = bytes_of(of.spec.runtime);
  const auto put = [&](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    for (std::int64_t r = row; r < row + rows; ++r)
      for (std::int64_t b = col * element; b < (col + cols) * element; ++b)
        ++written.at(static_cast<std::size_t>(r / of.slot_rows * of.slot_storage_rows * of.row_bytes() + wr::map_offset(of.map, r % of.slot_rows, b, of.row_bytes())));
  };
  for (const wr::planned_landing& each : of.landings) put(each.local_row, each.needed.rows(), 0, each.needed.cols());
  for (const wr::planned_pad& each : of.pads) put(each.local_row, each.rows, each.local_col, each.cols);
  for (std::size_t i = 0; i < written.size(); ++i)
    if (written[i] != 1) return of.name + ": byte " + std::to_string(i) + " is written " + std::to_string(written[i]) + " times";
  return {};
}

/// w1 above w3, each half padded by itself, in TRT-LLM's order.
struct Gated : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3>, wr::Map<wr::PadToMultiple<32, 4>, wr::GatedInterleave, wr::ShuffleRows<32>>>> {};
struct Swapped : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::Map<wr::PadToMultiple<8, 1>, wr::SwapHalves>>> {};

}  // namespace

TEST_CASE("every byte of every param belongs to one landing or one pad") {
  property("random NVFP4 layers", [] {
    for (const nv::layer& of : draw_nvfp4_model())
      visit_nvfp4(of, [&](auto layout) {
        wr::layer_plan plan;
        must(wr::plan_layer(decltype(layout)::specs, of.name, extents_of(of), plan));
        for (const wr::planned_param& each : plan.params)
          if (each.has_storage() && !each.spec.is_computed()) demand(coverage_of(each).empty(), coverage_of(each));
      });
  });
  for (const std::int64_t half : {1, 20, 32, 33}) {
    const wr::extents sizes{.shards = {{.module = "w1", .rows = half}, {.module = "w3", .rows = half}}, .inner = {6}};
    const auto gated = plan_of(Gated::specs, sizes), swapped = plan_of(Swapped::specs, sizes);
    CHECK(coverage_of(gated.params[0]) == "");
    CHECK(coverage_of(swapped.params[0]) == "");
    const std::int64_t padded = wr::ceil_div(half, 32) * 32;
    CHECK(gated.params[0].extents == wr::shape{2 * padded, 8});
    CHECK(gated.params[0].landings[1].local_row == padded);  // a pad behind each half, not behind both
  }
}

TEST_CASE("formats.md 2.1: 200 x 80 in both back ends, padded, so bound and not aliased") {
  const auto sizes = wr::extents::matrix("l", 200, 40);
  const auto cutlass = plan_of(wr::Nvfp4Linear::specs, sizes), trtllm = plan_of(wr::Nvfp4LinearTrtllm::specs, sizes);
  CHECK(param(cutlass, "weight").extents == wr::shape{224, 48});
  CHECK(param(cutlass, "weight").bytes() == 10752);
  CHECK(param(trtllm, "weight").extents == wr::shape{256, 64});
  CHECK(param(trtllm, "weight").bytes() == 16384);
  for (const auto* plan : {&cutlass, &trtllm}) {
    const auto& scale = param(*plan, "weight_scale_interleaved");
    CHECK(scale.extents == wr::shape{256, 8});
    CHECK(scale.bytes() == 2048);
    CHECK(scale.pad_bytes() == 1048);
    CHECK_FALSE(param(*plan, "weight_scale").has_storage());
    CHECK(param(*plan, "weight_scale").landings.empty());
    CHECK(param(*plan, "alpha").extents == wr::shape{});
    CHECK(param(*plan, "alpha").bytes() == 4);
    CHECK(plan->sources.size() == 4);
  }
}

TEST_CASE("row-parallel cuts fall on whole 16-element blocks, or are refused by the module's name") {
  const auto cut = [](std::int64_t values, int ranks) { return wr::extents::matrix("o_proj", 32, values / 2).cut(wr::parallel::row, {ranks, ranks - 1}); };
  for (const int ranks : {1, 2, 4}) CHECK(param(plan_of(wr::Nvfp4Linear::specs, cut(128, ranks)), "weight_scale_interleaved").landings[0].needed.cols() == 8 / ranks);
  CHECK(refusal(wr::Nvfp4Linear::specs, cut(96, 4)) == "o_proj: expected whole 1x16 scale blocks a rank, got rows 0..32, cols 36..48");
  CHECK(refusal(wr::Nvfp4LinearTrtllm::specs, cut(32, 4)).starts_with("o_proj: expected whole 1x16 scale blocks a rank"));
  CHECK(refusal(wr::Nvfp4Linear::specs, cut(72, 1)) == "o_proj: expected columns in multiples of 16 values, got 72");
  CHECK(refusal(wr::Nvfp4Linear::specs, wr::extents::matrix("o_proj", 32, 37)) == "o_proj: expected columns in multiples of 16 values, got 74");  // an odd packed count
}

TEST_CASE("what a map needs of a slot is refused by the param's name") {
  const auto experts = [](std::int64_t width, std::int64_t hidden) { return extents_of(nvfp4_experts("layer", 2, width, hidden, nv::backend::trtllm)); };
  plan_of(wr::Nvfp4MoeTrtllm::specs, experts(64, 128));
  CHECK(refusal(wr::Nvfp4MoeTrtllm::specs, experts(96, 128)) == "layer.w13_blockscale_swizzled: expected padded rows in multiples of 128 (ShuffleRows<32>, Swizzle128x4), got 192 padded rows");
  CHECK(refusal(wr::Nvfp4MoeTrtllm::specs, experts(64, 192)).starts_with("layer.w2_blockscale_swizzled: expected padded rows in multiples of 128"));
  CHECK(refusal(wr::Nvfp4MoeTrtllm::specs, experts(64, 144)).starts_with("layer.w2_weight: expected padded rows in multiples of 32 (ShuffleRows<32>)"));
  CHECK(refusal(Gated::specs, wr::extents::matrix("w13", 7, 4)).find("layer.weight: expected two equal halves (GatedInterleave)") == 0);
  // Padded halves, both in one tensor: half a landing would have to move.
  CHECK(refusal(Gated::specs, wr::extents::matrix("w13", 40, 4)) == "w13.weight: expected one half of a gated weight a tensor, got rows of both, and a pad between them");
  plan_of(Gated::specs, wr::extents::matrix("w13", 64, 4));
}

TEST_CASE("experts: out of range is refused, twice is a replica") {
  nv::layer of = nvfp4_experts("layer", 2, 64, 64);
  for (const std::int64_t wrong : {2, -1}) {
    of.experts_local = {0, wrong};
    CHECK(refusal(wr::Nvfp4Moe::specs, extents_of(of)) == "layer: expected experts below 2, got " + std::to_string(wrong));
  }
  of.experts_local = {1, 1, 0};
  const auto plan = plan_of(wr::Nvfp4Moe::specs, extents_of(of));
  CHECK(param(plan, "w13_weight").extents == wr::shape{3, 128, 32});
  CHECK(param(plan, "g1_alphas").extents == wr::shape{3});
  CHECK(param(plan, "w13_input_scale").extents == wr::shape{2, 2});
  CHECK(param(plan, "w13_input_scale_quant").extents == wr::shape{});
  CHECK(param(plan, "w13_weight").landings[0].source == param(plan, "w13_weight").landings[2].source);
}

TEST_CASE("arithmetic that the layer's extents do not give is refused by name") {
  namespace n = wr::names;
  struct Unreduced : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32>>, wr::Derived<n::alpha, wr::Bind, wr::Product<n::input_scale>>> {};
  struct OneEach : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32, wr::OfAllExperts>>,
                                   wr::Derived<n::alpha, wr::Bind, wr::Max<n::input_scale, wr::Across<wr::shards>>>> {};
  struct Absent : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32>, wr::From<n::input_scale, n::gate_proj>>,
                                  wr::Derived<n::alpha, wr::Bind, wr::Pick<n::input_scale, n::up_proj>>> {};
  const wr::extents one{.shards = {{.module = "gate_proj", .rows = 2}}, .inner = {2}};
  wr::extents two = one;
  two.shards.push_back({.module = "up_proj", .rows = 2});
  plan_of(Unreduced::specs, one);
  CHECK(refusal(Unreduced::specs, two) == "layer.alpha: expected one value an expert: Max<..., Across<shards>> or Pick<...>, got layer.input_scale with 2");
  CHECK(refusal(Absent::specs, two) == "layer.alpha: expected a module that the factor has, got layer.input_scale with no up_proj");
  wr::extents stacked = one;
  stacked.experts = wr::expert_slots{3, {0}};
  CHECK(refusal(OneEach::specs, stacked).find("values of all experts under Max<..., Across<experts, ...>>") != std::string::npos);
}

TEST_CASE("kept scales stand beside their rows, pads included") {
  const wr::extents sizes{.shards = {{.module = "a", .rows = 4, .checkpoint_rows = 3}, {.module = "b", .rows = 4}}, .inner = {16}};
  const auto fp4 = plan_of(wr::Nvfp4LinearOf<wr::Map<wr::PadToMultiple<1, 1>>, wr::Map<wr::PadToMultiple<1, 1>>>::specs, sizes);
  const auto& scale = param(fp4, "weight_scale_interleaved");
  CHECK(scale.rows == 8);
  CHECK(scale.landings[1].local_row == 4);
  CHECK(param(fp4, "weight").landings[1].local_row == 4);
  CHECK(coverage_of(scale) == "");
  CHECK(coverage_of(param(plan_of(wr::Nvfp4Linear::specs, sizes), "weight_scale_interleaved")) == "");
  // A rank of a padded vocabulary that holds nothing but pads.
  const wr::extents vocabulary{.shards = {{.module = "lm_head", .rows = 8, .checkpoint_rows = 4}}, .inner = {6}};
  const auto fp8 = plan_of(wr::Fp8BlockLinearOf<2, 3>::specs, vocabulary.cut(wr::parallel::column, {2, 1}));
  CHECK(param(fp8, "weight_scale_inv").extents == wr::shape{2, 2});
  CHECK(param(fp8, "weight_scale_inv").landings.empty());
  CHECK(coverage_of(param(fp8, "weight_scale_inv")) == "");
}

TEST_CASE("MN-major scales: an alias where block rows are a multiple of 4, else bound; every byte once") {
  for (const auto& [rows, pitch] : {std::pair<std::int64_t, std::int64_t>{512, 4}, {1024, 8}, {300, 4}, {513, 8}, {1, 4}}) {
    const auto plan = plan_of(wr::Fp8BlockLinearMnMajor::specs, wr::extents::matrix("l", rows, 384 + 5));
    const auto& scale = param(plan, "weight_scale_inv_mn_major");
    CHECK(scale.extents == wr::shape{4, pitch});
    CHECK(scale.rows == 4);
    CHECK(scale.row_bytes() == 4 * pitch);
    CHECK(scale.pad_bytes() == (pitch - (rows + 127) / 128) * 4 * 4);
    CHECK(coverage_of(scale) == "");
    CHECK_FALSE(param(plan, "weight_scale_inv").has_storage());
  }
  const auto stacked = [](std::int64_t width, std::int64_t hidden) {
    return wr::extents{.shards = {{.module = "gate_proj", .rows = width, .cols = hidden}, {.module = "up_proj", .rows = width, .cols = hidden},
                                  {.module = "down_proj", .rows = hidden, .cols = width}}, .experts = wr::expert_slots{4, {3, 1, 3}}};
  };
  const auto moe = plan_of(wr::Fp8BlockMoeMnMajor::specs, stacked(384, 300));
  CHECK(param(moe, "w13_weight_scale_inv_mn_major").extents == wr::shape{3, 3, 8});  // 6 block rows of each expert
  CHECK(param(moe, "w13_weight_scale_inv_mn_major").pad_bytes() == 3 * 3 * 2 * 4);
  CHECK(param(moe, "w13_weight_scale_inv_mn_major").landings[3].local_row == 8 + 3);
  CHECK(param(moe, "w2_weight_scale_inv_mn_major").extents == wr::shape{3, 3, 4});
  for (const char* name : {"w13_weight_scale_inv_mn_major", "w2_weight_scale_inv_mn_major"}) CHECK(coverage_of(param(moe, name)) == "");
  CHECK(param(plan_of(wr::Fp8BlockMoeMnMajor::specs, stacked(256, 512)), "w13_weight_scale_inv_mn_major").pad_bytes() == 0);
  wr::extents none = stacked(256, 512);
  none.experts->local.clear();
  CHECK(param(plan_of(wr::Fp8BlockMoeMnMajor::specs, none), "w13_weight_scale_inv_mn_major").bytes() == 0);
  struct Packed : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3>, wr::Map<wr::MnMajor>>> {};
  CHECK(refusal(Packed::specs, wr::extents::matrix("l", 8, 8)) == "layer.weight: expected elements of 4 bytes (MnMajor), got 1 bytes an element");
  wr::status error;
  const std::string told = wr::describe<wr::Fp8BlockLinearMnMajor>("l", wr::extents::matrix("l", 300, 256), &error);
  CHECK_MESSAGE(told.find("l.weight_scale_inv_mn_major  F32 [2, 4]  scale per 128x128  32 bytes  MnMajor  bind for weight_scale_inv, saves 24 bytes\n"
                          "    row 0 <- l.weight_scale_inv rows 0..3, cols 0..2\n    row 3 <- 1 rows of zeros\n") != std::string::npos, told);
}

TEST_CASE("describe: alias, bind, bytes saved, maps, kept, retired, computed") {
  wr::status error;
  CHECK(wr::describe<wr::Nvfp4Linear>("l", wr::extents::matrix("l", 128, 64), &error) ==
        "l.weight  F4_E2M1X2 [128, 64]  8192 bytes  PadToMultiple<32, 32>\n"
        "    row 0 <- l.weight rows 0..128, cols 0..64\n"
        "l.weight_scale_2  F32 [1]  4 bytes  retired\n"
        "    row 0 <- l.weight_scale_2 rows 0..1, cols 0..1\n"
        "l.input_scale  F32 [1]  4 bytes  kept\n"
        "    row 0 <- l.input_scale rows 0..1, cols 0..1\n"
        "l.weight_scale_interleaved  F8_E4M3 [128, 8]  scale per 1x16  1024 bytes  Swizzle128x4  alias of weight_scale, saves 1024 bytes\n"
        "    row 0 <- l.weight_scale rows 0..128, cols 0..8\n"
        "l.alpha  F32 []  4 bytes  computed\n"
        "l.input_scale_inv  F32 []  4 bytes  computed\n");
  const std::string padded = wr::describe<wr::Nvfp4LinearTrtllm>("l", wr::extents::matrix("l", 200, 40), &error);
  CHECK_MESSAGE(padded.find("l.weight_scale_interleaved  F8_E4M3 [256, 8]  scale per 1x16  2048 bytes  PadToMultiple<128, 4>, ShuffleRows<32>, Swizzle128x4"
                            "  bind for weight_scale, saves 1000 bytes\n") != std::string::npos, padded);
}
