// Storage plans: what an engine allocates, against the tables of public models (reference/models.md).
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layout/storage_plan.hpp>
#include <wreload/layouts/fp8_dequant_linear.hpp>
#include <wreload/layouts/fp8_dequant_moe.hpp>
#include <wreload/layouts/plain.hpp>

namespace wr = wreload;

namespace {

template <class Layout>
std::vector<wr::storage_need> needs_of(const wr::extents& sizes) {
  wr::status error;
  const auto needs = wr::storage_plan<Layout>("layer", sizes, &error);
  REQUIRE_MESSAGE(error.ok(), error.message());
  for (const wr::storage_need& need : needs) CHECK(need.bytes == need.rows * need.row_stride_bytes);
  return needs;
}

wr::extents fused(std::vector<wr::shard> shards, std::int64_t cols) {
  return {.shards = std::move(shards), .inner = {cols}};
}

}  // namespace

TEST_CASE("GLM-5.3-Flash: the four MLA matrices") {
  const auto qkv_a = needs_of<wr::Fp8DequantLinear>(fused({{.module = "q_a_proj", .rows = 1536}, {.module = "kv_a_proj_with_mqa", .rows = 512}}, 4096));
  REQUIRE(qkv_a.size() == 2);
  CHECK(qkv_a[0].name == "layer.weight");
  CHECK(qkv_a[0].type == wr::dtype::bf16);
  CHECK(qkv_a[0].extents == wr::shape{2048, 4096});
  CHECK(qkv_a[0].row_stride_bytes == 8192);
  CHECK_FALSE(qkv_a[0].retired);
  CHECK(qkv_a[1].name == "layer.weight_scale_inv");
  CHECK(qkv_a[1].type == wr::dtype::fp32);
  CHECK(qkv_a[1].extents == wr::shape{16, 32});  // 12 + 4
  CHECK(qkv_a[1].retired);

  const auto q_b = needs_of<wr::Fp8DequantLinear>(wr::extents::matrix("q_b_proj", 16384, 1536));
  const auto o = needs_of<wr::Fp8DequantLinear>(wr::extents::matrix("o_proj", 4096, 16384));
  CHECK(q_b[1].extents == wr::shape{128, 12});
  CHECK(o[1].extents == wr::shape{32, 128});
  CHECK(qkv_a[0].bytes + q_b[0].bytes + o[0].bytes == 201326592);  // models.md 1.4: dequantised
  CHECK(qkv_a[1].bytes + q_b[1].bytes + o[1].bytes == 6144 * 4);   // ... and the scales of the four
}

TEST_CASE("GLM-5.3-Flash: shapes per rank at every t") {
  for (const int t : {1, 2, 4, 8, 16}) {
    for (const int rank : {0, t - 1}) {
      const auto q_b = needs_of<wr::Fp8DequantLinear>(wr::extents::matrix("q_b_proj", 16384, 1536).cut(wr::parallel::column, {t, rank}));
      CHECK(q_b[0].extents == wr::shape{16384 / t, 1536});
      CHECK(q_b[1].extents == wr::shape{128 / t, 12});
      const auto o = needs_of<wr::Fp8DequantLinear>(wr::extents::matrix("o_proj", 4096, 16384).cut(wr::parallel::row, {t, rank}));
      CHECK(o[0].extents == wr::shape{4096, 16384 / t});
      CHECK(o[1].extents == wr::shape{32, 128 / t});
    }
  }
}

TEST_CASE("GLM-5.3-Flash: a fused column-parallel param with replicated shards") {
  for (const int t : {1, 2, 4, 8}) {
    wr::extents sizes = fused({{.module = "q_proj", .rows = 8192}, {.module = "k_proj", .rows = 8192}, {.module = "v_proj", .rows = 8192},
                               {.module = "b_proj", .rows = 64},
                               {.module = "f_a_proj", .rows = 128, .split = wr::parallel::replicated},
                               {.module = "g_a_proj", .rows = 128, .split = wr::parallel::replicated}}, 4096);
    sizes.type = wr::dtype::bf16;
    const auto needs = needs_of<wr::Plain>(sizes.cut(wr::parallel::column, {t, t - 1}));
    CHECK(needs[0].extents == wr::shape{(24576 + 64) / t + 256, 4096});
  }
}

TEST_CASE("GLM-5.3-Flash: vectors, convolutions, reshaped and upcast tensors") {
  CHECK(needs_of<wr::Plain>(wr::extents::tensor("q_conv1d.weight", {8192, 1, 4}, wr::dtype::fp32).cut(wr::parallel::column, {8, 3}))[0].extents ==
        wr::shape{1024, 1, 4});
  wr::extents a_log = wr::extents::tensor("A_log", {64}, wr::dtype::fp32).cut(wr::parallel::column, {8, 3});
  a_log.runtime_shape = wr::shape{1, 1, 8, 1};
  const auto needs = needs_of<wr::Plain>(a_log);
  CHECK(needs[0].extents == wr::shape{1, 1, 8, 1});
  CHECK(needs[0].bytes == 32);
  CHECK(needs_of<wr::Plain>(wr::extents::tensor("patch_embed.proj.weight", {1024, 3, 2, 14, 14}, wr::dtype::bf16))[0].bytes == 1024 * 1176 * 2);
  CHECK(needs_of<wr::Plain>(wr::extents::tensor("input_scale", {}, wr::dtype::fp32))[0].extents == wr::shape{});
}

TEST_CASE("DeepSeek-V3: 2112 fused rows need 17 scale rows") {
  const auto needs = needs_of<wr::Fp8DequantLinear>(fused({{.module = "q_a_proj", .rows = 1536}, {.module = "kv_a_proj_with_mqa", .rows = 576}}, 7168));
  CHECK(needs[0].extents == wr::shape{2112, 7168});
  CHECK(needs[0].bytes == 30277632);
  CHECK(needs[1].extents == wr::shape{17, 56});
  CHECK(needs[1].bytes == 17 * 56 * 4);
}

TEST_CASE("MiMo-V2: ranks of 1856 rows need 15 scale rows, as one grid and as grids per group") {
  for (int rank = 0; rank < 8; ++rank) {
    const auto one_grid = needs_of<wr::Fp8DequantLinear>(wr::extents::matrix("qkv_proj", 14848, 4096).cut(wr::parallel::column, {8, rank}));
    CHECK(one_grid[0].extents == wr::shape{1856, 4096});
    CHECK(one_grid[1].extents == wr::shape{15, 32});
    wr::extents groups = fused({{.module = "qkv_proj", .rows = 14848, .grid_rows = 1856}}, 4096);
    const auto grids = needs_of<wr::Fp8DequantLinear>(groups.cut(wr::parallel::column, {8, rank}));
    CHECK(grids[0].extents == wr::shape{1856, 4096});
    CHECK(grids[1].extents == wr::shape{15, 32});
  }
  // On one rank the two readings differ: 116 rows in one grid, 8 * 15 in groups.
  CHECK(needs_of<wr::Fp8DequantLinear>(wr::extents::matrix("qkv_proj", 14848, 4096))[1].extents == wr::shape{116, 32});
  CHECK(needs_of<wr::Fp8DequantLinear>(fused({{.module = "qkv_proj", .rows = 14848, .grid_rows = 1856}}, 4096))[1].extents == wr::shape{120, 32});
  // Global layers: four chunks of 3392 rows (26.5 blocks) with 27 scale rows each.
  CHECK(needs_of<wr::Fp8DequantLinear>(fused({{.module = "qkv_proj", .rows = 13568, .grid_rows = 3392}}, 4096))[1].extents == wr::shape{108, 32});
}

TEST_CASE("Llama-3.1-8B: qkv with fewer KV heads than ranks") {
  const auto rows = [](int t) {
    const int kv = std::min(t, 8);
    wr::extents sizes = fused({{.module = "q_proj", .rows = 4096}, {.module = "k_proj", .rows = 1024, .parts = kv}, {.module = "v_proj", .rows = 1024, .parts = kv}}, 4096);
    sizes.type = wr::dtype::bf16;
    return needs_of<wr::Plain>(sizes.cut(wr::parallel::column, {t, t - 1}))[0].extents[0];
  };
  CHECK(rows(1) == 6144);
  CHECK(rows(8) == 768);
  CHECK(rows(16) == 4096 / 16 + 2 * 128);
}

TEST_CASE("stacked experts: one grid per slot and module") {
  wr::extents sizes{.shards = {{.module = "gate_proj", .rows = 2048, .cols = 4096}, {.module = "up_proj", .rows = 2048, .cols = 4096},
                               {.module = "down_proj", .rows = 4096, .cols = 2048, .split = wr::parallel::row}},
                    .experts = wr::expert_slots::all(288)};
  const auto needs = needs_of<wr::Fp8DequantMoe>(sizes.cut(wr::parallel::column, {16, 5}));
  REQUIRE(needs.size() == 4);
  CHECK(needs[0].extents == wr::shape{288, 256, 4096});
  CHECK(needs[1].extents == wr::shape{288, 2, 32});
  CHECK(needs[2].extents == wr::shape{288, 4096, 128});
  CHECK(needs[3].extents == wr::shape{288, 32, 1});
}

TEST_CASE("a refused plan has no needs and says why") {
  wr::status error;
  const auto needs = wr::storage_plan<wr::Fp8DequantLinear>("layer", wr::extents::matrix("a.o_proj", 8, 10).cut(wr::parallel::row, {4, 0}), &error);
  CHECK(needs.empty());
  CHECK(error.code == wr::error_code::bad_layout);
  CHECK(error.message() == "a.o_proj: expected columns that 4 row-parallel ranks divide, got 10");
}
