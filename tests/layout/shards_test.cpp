// Shards: which part of a checkpoint tensor a rank holds, and what a cut cannot give.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layout/shards.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

wr::shard_slice slice_of(const wr::shard& part, const wr::extents& layer) {
  wr::shard_slice slice;
  const wr::status error = wr::slice_shard(part, layer, slice);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return slice;
}

wr::extents layer_of(std::int64_t cols, wr::parallel split, int size, int rank) {
  return {.inner = {cols}, .split = split, .tp = {size, rank}};
}

std::string refusal(const wr::shard& part, const wr::extents& layer) {
  wr::shard_slice slice;
  const wr::status error = wr::slice_shard(part, layer, slice);
  CHECK(error.code == wr::error_code::bad_layout);
  CHECK(error.param == part.module);
  CHECK_FALSE(error.expected.empty());
  CHECK_FALSE(error.got.empty());
  return error.message();
}

/// First row of each rank's slice, in units of slices.
std::vector<std::int64_t> heads_of(int heads, int ranks) {
  std::vector<std::int64_t> held;
  for (int rank = 0; rank < ranks; ++rank) {
    const wr::shard part{.module = "k_proj", .rows = heads * 128, .parts = std::min(heads, ranks)};
    const auto slice = slice_of(part, layer_of(64, wr::parallel::column, ranks, rank));
    held.push_back(slice.needed.row_begin / slice.local_rows);
  }
  return held;
}

}  // namespace

TEST_CASE("a column cut gives every row to one rank, a row cut every column, a replicated shard everything to all") {
  property("union over ranks", [] {
    const auto ranks = *rc::gen::inRange(1, 6);
    const auto how = *rc::gen::element(wr::parallel::replicated, wr::parallel::column, wr::parallel::row);
    const auto rows = *rc::gen::inRange<std::int64_t>(0, 6) * (how == wr::parallel::column ? ranks : 1);
    const auto cols = *rc::gen::inRange<std::int64_t>(0, 6) * (how == wr::parallel::row ? ranks : 1);
    const auto given = *rc::gen::inRange<std::int64_t>(0, rows + 1);
    const auto before = *rc::gen::inRange<std::int64_t>(0, 3);
    const auto behind = *rc::gen::inRange<std::int64_t>(0, 3);
    const wr::shard part{.module = "m", .rows = rows, .checkpoint_rows = given, .tensor_rows = before + given + behind,
                         .tensor_row_begin = before};
    std::vector<int> times(static_cast<std::size_t>((before + given + behind) * cols), 0);
    std::int64_t local_rows = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      wr::shard_slice slice;
      RC_ASSERT(wr::slice_shard(part, layer_of(cols, how, ranks, rank), slice).ok());
      local_rows += slice.local_rows;
      RC_ASSERT(slice.tensor_rows == before + given + behind);
      RC_ASSERT(slice.needed.empty() || slice.needed.rows() <= slice.local_rows);
      RC_ASSERT(slice.needed.empty() || slice.needed.cols() == slice.local_inner[0]);
      for (std::int64_t r = slice.needed.row_begin; r < slice.needed.row_end; ++r)
        for (std::int64_t c = slice.needed.col_begin; c < slice.needed.col_end; ++c)
          ++times[static_cast<std::size_t>(r * cols + c)];
    }
    RC_ASSERT(local_rows == rows * (how == wr::parallel::column ? 1 : ranks));
    for (std::int64_t r = 0; r < before + given + behind; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const bool wanted = r >= before && r < before + given;
        const int expected = !wanted ? 0 : how == wr::parallel::replicated ? ranks : 1;
        RC_ASSERT(times[static_cast<std::size_t>(r * cols + c)] == expected);
      }
  });
}

TEST_CASE("the whole tensor on one rank, whatever the cut") {
  for (const auto how : {wr::parallel::replicated, wr::parallel::column, wr::parallel::row}) {
    const auto slice = slice_of({.module = "m", .rows = 5}, layer_of(7, how, 1, 0));
    CHECK(slice.needed == wr::rect{0, 5, 0, 7});
    CHECK(slice.local_rows == 5);
    CHECK(slice.local_inner == wr::shape{7});
  }
}

TEST_CASE("fewer KV heads than ranks: neighbours share") {
  CHECK(heads_of(2, 8) == std::vector<std::int64_t>{0, 0, 0, 0, 1, 1, 1, 1});  // modelexpress#650
  CHECK(heads_of(2, 4) == std::vector<std::int64_t>{0, 0, 1, 1});              // ScaleLLM#213: not 0, 1, 0, 1
  CHECK(heads_of(4, 8) == std::vector<std::int64_t>{0, 0, 1, 1, 2, 2, 3, 3});  // Qwen3-30B at t = 8
  CHECK(heads_of(1, 3) == std::vector<std::int64_t>{0, 0, 0});
  CHECK(heads_of(8, 8) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(heads_of(8, 2) == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("a replicated shard keeps offset 0 on every rank") {  // vllm#48025
  for (int rank = 0; rank < 4; ++rank) {
    const wr::shard part{.module = "f_a_proj", .rows = 576, .split = wr::parallel::replicated};
    CHECK(slice_of(part, layer_of(64, wr::parallel::column, 4, rank)).needed == wr::rect{0, 576, 0, 64});
  }
}

TEST_CASE("a vector is not cut by a row cut") {
  wr::extents layer{.split = wr::parallel::row, .tp = {4, 3}};
  const auto slice = slice_of({.module = "o_proj", .rows = 7}, layer);
  CHECK(slice.needed == wr::rect{0, 7, 0, 1});
  CHECK(slice.local_rows == 7);
}

TEST_CASE("a row cut of a filter cuts its first inner dim") {
  wr::extents layer{.inner = {6, 2, 2}, .split = wr::parallel::row, .tp = {3, 1}};
  const auto slice = slice_of({.module = "conv", .rows = 4}, layer);
  CHECK(slice.needed == wr::rect{0, 4, 8, 16});
  CHECK(slice.local_inner == wr::shape{2, 2, 2});
}

TEST_CASE("fewer checkpoint rows than storage rows: the last ranks hold less, or only pad") {
  const wr::shard vocabulary{.module = "embed_tokens", .rows = 16, .checkpoint_rows = 9};
  const auto cut = [&](int rank) { return slice_of(vocabulary, layer_of(3, wr::parallel::column, 4, rank)); };
  CHECK(cut(0).needed == wr::rect{0, 4, 0, 3});
  CHECK(cut(1).needed == wr::rect{4, 8, 0, 3});
  CHECK(cut(2).needed == wr::rect{8, 9, 0, 3});
  CHECK(cut(3).needed.empty());
  for (int rank = 0; rank < 4; ++rank) CHECK(cut(rank).local_rows == 4);
}

TEST_CASE("part of a tensor that is fused on disk") {
  const wr::shard keys{.module = "qkv_proj", .rows = 4, .tensor_rows = 20, .tensor_row_begin = 12};
  CHECK(slice_of(keys, layer_of(3, wr::parallel::column, 2, 1)).needed == wr::rect{14, 16, 0, 3});
}

TEST_CASE("what a cut cannot give is refused by the module's name") {
  using wr::parallel;
  CHECK(refusal({.module = "q", .rows = 10}, layer_of(4, parallel::column, 4, 0)) ==
        "q: expected rows that 4 column-parallel parts divide, got 10");
  CHECK(refusal({.module = "o", .rows = 8}, layer_of(10, parallel::row, 4, 0)) ==
        "o: expected columns that 4 row-parallel ranks divide, got 10");
  CHECK(refusal({.module = "k", .rows = 6, .parts = 3}, layer_of(4, parallel::column, 4, 0)) ==
        "k: expected a number of parts that divides 4 ranks, got 3");
  CHECK(refusal({.module = "k", .rows = 6, .parts = -1}, layer_of(4, parallel::column, 4, 0)) ==
        "k: expected a number of parts that divides 4 ranks, got -1");
  CHECK(refusal({.module = "k", .rows = 16, .parts = 8}, layer_of(4, parallel::column, 4, 0)) ==
        "k: expected a number of parts that divides 4 ranks, got 8");
  CHECK(refusal({.module = "v", .rows = 4, .checkpoint_rows = 5}, layer_of(4, parallel::replicated, 1, 0)) ==
        "v: expected at most 4 checkpoint rows, got 5");
  CHECK(refusal({.module = "qkv", .rows = 4, .tensor_rows = 10, .tensor_row_begin = 7},
                layer_of(4, parallel::replicated, 1, 0)) == "qkv: expected rows inside a tensor of 10 rows, got 4 rows from row 7 on");
  CHECK(refusal({.module = "g", .rows = 4, .grid_rows = -1}, layer_of(4, parallel::replicated, 1, 0)) ==
        "g: expected grid_rows of 0 or more, got -1");
}

TEST_CASE("a rank outside its group is refused") {
  const wr::shard part{.module = "q", .rows = 8};
  CHECK(refusal(part, layer_of(4, wr::parallel::column, 2, 2)) == "q: expected a rank below the group's size, got rank 2 of 2");
  refusal(part, layer_of(4, wr::parallel::column, 2, -1));
  refusal(part, layer_of(4, wr::parallel::replicated, 0, 0));
  refusal(part, layer_of(4, wr::parallel::row, -2, -3));
}

TEST_CASE("extents that do not fit in 64 bits are refused") {
  const auto whole = [](std::int64_t cols) { return layer_of(cols, wr::parallel::replicated, 1, 0); };
  refusal({.module = "q", .rows = huge}, whole(2));
  refusal({.module = "q", .rows = std::int64_t{1} << 32}, whole(std::int64_t{1} << 32));
  refusal({.module = "q", .rows = -1}, whole(2));
  refusal({.module = "q", .rows = 4}, whole(-2));
  refusal({.module = "q", .rows = 4, .tensor_rows = huge, .tensor_row_begin = huge}, whole(2));
  refusal({.module = "q", .rows = 4, .tensor_row_begin = -1}, whole(2));
}

TEST_CASE("expert_slots::all puts expert i into slot i") {
  const auto slots = wr::expert_slots::all(3);
  CHECK(slots.total == 3);
  CHECK(slots.local == std::vector<std::int64_t>{0, 1, 2});
}

TEST_CASE("extents of a matrix and of a tensor") {
  const auto matrix = wr::extents::matrix("q", 4, 6);
  CHECK(matrix.shards[0].module == "q");
  CHECK(matrix.shards[0].rows == 4);
  CHECK(matrix.inner == wr::shape{6});
  const auto filter = wr::extents::tensor("conv.weight", {8, 1, 4}, wr::dtype::bf16);
  CHECK(filter.shards[0].rows == 8);
  CHECK(filter.inner == wr::shape{1, 4});
  CHECK(filter.type == wr::dtype::bf16);
  CHECK_FALSE(filter.scalar);
  CHECK(wr::extents::tensor("s", {}, wr::dtype::fp32).scalar);
  CHECK_FALSE(wr::extents::tensor("s", {1}, wr::dtype::fp32).scalar);
  const auto cut = matrix.cut(wr::parallel::row, {4, 2});
  CHECK(cut.split == wr::parallel::row);
  CHECK(cut.tp.rank == 2);
  CHECK(matrix.tp.size == 1);
}
