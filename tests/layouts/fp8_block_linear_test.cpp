// Fp8BlockLinear: whole blocks a shard and rank, or a refusal by the module's name.
#include <doctest/doctest.h>

#include <wreload/layout/storage_plan.hpp>
#include <wreload/layouts/fp8_block_linear.hpp>

namespace wr = wreload;

namespace {

std::vector<wr::storage_need> needs_of(const wr::extents& sizes) {
  wr::status error;
  const auto needs = wr::storage_plan<wr::Fp8BlockLinear>("layer", sizes, &error);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return needs;
}
std::string refusal(const wr::extents& sizes) {
  wr::status error;
  CHECK(wr::storage_plan<wr::Fp8BlockLinear>("layer", sizes, &error).empty());
  CHECK(error.code == wr::error_code::bad_layout);
  return error.message();
}
wr::extents fused(std::vector<wr::shard> shards, std::int64_t cols) { return {.shards = std::move(shards), .inner = {cols}}; }

}  // namespace

TEST_CASE("weights stay FP8, grids of shards one below the other") {
  const auto needs = needs_of(fused({{.module = "q_a_proj", .rows = 1536}, {.module = "kv_a_proj_with_mqa", .rows = 576}}, 7168));
  REQUIRE(needs.size() == 2);
  CHECK(needs[0].type == wr::dtype::fp8_e4m3);
  CHECK(needs[0].extents == wr::shape{2112, 7168});
  CHECK(needs[1].extents == wr::shape{17, 56});  // the last shard may end inside a block
  CHECK_FALSE(needs[1].retired);
}

TEST_CASE("Qwen3-30B-A3B: qkv and o_proj at every t that has whole blocks") {
  for (const int t : {1, 2, 4}) {
    const auto qkv = needs_of(fused({{.module = "q", .rows = 4096}, {.module = "k", .rows = 512}, {.module = "v", .rows = 512}}, 2048).cut(wr::parallel::column, {t, t - 1}));
    CHECK(qkv[0].extents == wr::shape{5120 / t, 2048});
    CHECK(qkv[1].extents == wr::shape{40 / t, 16});
    const auto o = needs_of(wr::extents::matrix("o_proj", 2048, 4096).cut(wr::parallel::row, {t, t - 1}));
    CHECK(o[0].extents == wr::shape{2048, 4096 / t});
    CHECK(o[1].extents == wr::shape{16, 32 / t});
  }
  const wr::extents repeated = fused({{.module = "q", .rows = 4096}, {.module = "k", .rows = 512, .parts = 4}, {.module = "v", .rows = 512, .parts = 4}}, 2048);
  CHECK(needs_of(repeated.cut(wr::parallel::column, {8, 7}))[0].extents == wr::shape{768, 2048});
  CHECK(refusal(fused({{.module = "q", .rows = 4096}, {.module = "k", .rows = 512}}, 2048).cut(wr::parallel::column, {8, 0})).starts_with("k: expected whole 128x128 scale blocks a rank and shard"));
}

TEST_CASE("cuts inside a block are refused by the checkpoint module's name, also when fused") {
  CHECK(refusal(fused({{.module = "a", .rows = 576}, {.module = "b", .rows = 128}}, 256)) == "a: expected whole 128x128 scale blocks a rank and shard, got rows 0..576, cols 0..256");
  for (const int rank : {0, 1}) CHECK(refusal(wr::extents::matrix("w", 384, 256).cut(wr::parallel::column, {2, rank})).starts_with("w: expected whole 128x128"));
  for (const int rank : {0, 1}) CHECK(refusal(wr::extents::matrix("w", 128, 384).cut(wr::parallel::row, {2, rank})).starts_with("w: expected whole 128x128"));
  CHECK(needs_of(wr::extents::matrix("w", 200, 300))[1].extents == wr::shape{2, 3});  // whole, so both ends may be short
  CHECK(needs_of(fused({{.module = "w", .rows = 300}}, 128))[1].extents == wr::shape{3, 1});
}

TEST_CASE("grids per group of rows need whole blocks in every group but the last") {
  CHECK(refusal(fused({{.module = "w", .rows = 192, .grid_rows = 96}}, 128)).starts_with("w: expected whole 128x128"));  // rows 96.. would take block 0's scale
  CHECK(needs_of(fused({{.module = "w", .rows = 320, .grid_rows = 256}}, 128))[1].extents == wr::shape{3, 1});
}

TEST_CASE("a shard of a tensor that is fused on disk starts on a block, or is refused") {
  CHECK(needs_of(fused({{.module = "w", .rows = 256, .tensor_rows = 512, .tensor_row_begin = 256}}, 128))[1].extents == wr::shape{2, 1});
  CHECK(refusal(fused({{.module = "w", .rows = 256, .tensor_rows = 512, .tensor_row_begin = 64}}, 128)).starts_with("w: expected whole 128x128"));
}

TEST_CASE("scales in BF16 and UE8M0 are widened, under either spelling; BF16 weights are not declared") {
  wr::layer_plan plan;
  REQUIRE(wr::plan_layer(wr::Fp8BlockLinear::specs, "layer", wr::extents::matrix("w", 128, 128), plan).ok());
  CHECK(plan.sources[1].spellings == std::vector<std::string>{"w.weight_scale"});
  for (const wr::dtype type : {wr::dtype::fp32, wr::dtype::bf16, wr::dtype::fp8_ue8m0}) CHECK(plan.sources[1].accepted.contains(type));
  CHECK_FALSE(plan.sources[0].accepted.contains(wr::dtype::bf16));
}

TEST_CASE("MN-major scales: the same weight, and one allocation for the scales at a pitch of 16 bytes") {
  wr::status error;
  const auto needs = wr::storage_plan<wr::Fp8BlockLinearMnMajor>("layer", fused({{.module = "q_a_proj", .rows = 1536}, {.module = "kv_a_proj_with_mqa", .rows = 576}}, 7168), &error);
  REQUIRE_MESSAGE(error.ok(), error.message());
  REQUIRE(needs.size() == 2);
  CHECK(needs[0].extents == wr::shape{2112, 7168});
  CHECK(needs[1].name == "layer.weight_scale_inv_mn_major");
  CHECK(needs[1].extents == wr::shape{56, 20});  // of 17 x 56 blocks
  CHECK(needs[1].bytes == 56 * 20 * 4);
  CHECK(needs[1].row_stride_bytes == 80);
  const auto by_row = wr::storage_plan<wr::Fp8BlockLinearMnMajorOf<1, 128>>("layer", wr::extents::matrix("w", 30, 300), &error);
  CHECK(by_row[1].extents == wr::shape{3, 32});
}
