// Plans: for every element of a random layer, storage and scale say where it came from; compared with loops that know
// nothing of slices, blocks or phases.
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

/// weight FP8 over BF16 with a scale of run-time block sizes.
std::vector<wr::param_spec> block_fp8(int block_rows, int block_cols) {
  wr::param_spec weight{.name = "weight", .leaf = "weight"};
  weight.stored = wr::dtype::fp8_e4m3;
  weight.runtime = wr::dtype::bf16;
  weight.accepted = wr::dtype_set(wr::dtype::fp8_e4m3) | wr::dtype::bf16;
  weight.scaled_by = 1;
  wr::param_spec scale{.name = "weight_scale_inv", .leaf = "weight_scale_inv"};
  scale.stored = scale.runtime = wr::dtype::fp32;
  scale.accepted = wr::dtype::fp32;
  scale.block_rows = block_rows;
  scale.block_cols = block_cols;
  scale.kind = wr::param_kind::block_scale;
  scale.is_block_scale = scale.retired = true;
  return {weight, scale};
}

/// One unnamed param of a dtype, as `Plain`.
const std::vector<wr::param_spec> plain = {wr::param_spec{}};

/// What one element of storage holds.
struct origin {
  std::string tensor = {};  ///< empty: nothing yet; "pad": zero
  std::int64_t row = 0;
  std::int64_t col = 0;
  friend bool operator==(const origin&, const origin&) = default;
};

struct filled_param {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<origin> cells = {};

  origin& at(std::int64_t row, std::int64_t col) { return cells.at(static_cast<std::size_t>(row * cols + col)); }
};

/// Does what the landings and pads of a param say. Fails on two writes to one element and on a write outside.
filled_param fill(const wr::layer_plan& plan, const wr::planned_param& param) {
  filled_param filled{param.rows, param.cols, std::vector<origin>(static_cast<std::size_t>(param.rows * param.cols))};
  const auto put = [&](std::int64_t row, std::int64_t col, const origin& from) {
    RC_ASSERT(row >= 0 && row < param.rows && col >= 0 && col < param.cols);
    RC_ASSERT(filled.at(row, col).tensor.empty());
    filled.at(row, col) = from;
  };
  for (const wr::planned_landing& landing : param.landings) {
    const wr::planned_source& source = plan.sources.at(static_cast<std::size_t>(landing.source));
    RC_ASSERT(!landing.needed.empty());
    RC_ASSERT((wr::rect{0, source.extents.rows(), 0, source.extents.cols()}.contains(landing.needed)));
    for (std::int64_t r = landing.needed.row_begin; r < landing.needed.row_end; ++r)
      for (std::int64_t c = landing.needed.col_begin; c < landing.needed.col_end; ++c)
        put(landing.local_row + r - landing.needed.row_begin, c - landing.needed.col_begin, {source.name, r, c});
  }
  for (const wr::planned_pad& pad : param.pads)
    for (std::int64_t r = pad.local_row; r < pad.local_row + pad.rows; ++r)
      for (std::int64_t c = 0; c < param.cols; ++c) put(r, c, {"pad", 0, 0});
  return filled;
}

struct random_layer {
  wr::extents sizes = {};
  int block_rows = 1;
  int block_cols = 1;
};

/// Fused, cut, padded, stacked, fused on disk, with grids per group: any of them together, always legal.
random_layer any_layer() {
  // Large numbers are as likely in the first cases as in the last.
  const auto upto = [](int low, int high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1)); };
  const auto chance = [&](int of) { return upto(1, of) == 1; };
  random_layer layer;
  layer.block_rows = upto(1, 5);
  layer.block_cols = upto(1, 5);
  wr::extents& sizes = layer.sizes;
  sizes.tp.size = upto(1, 4);
  sizes.split = *rc::gen::element(wr::parallel::replicated, wr::parallel::column, wr::parallel::row);
  const bool row_cut = sizes.split == wr::parallel::row;
  const std::int64_t local_cols = upto(1, 7);
  const std::int64_t cols = row_cut ? local_cols * sizes.tp.size : local_cols;
  sizes.inner = {cols};
  const int shards = upto(1, 3);
  for (int i = 0; i < shards; ++i) {
    wr::shard part{.module = "m" + std::to_string(i)};
    if (chance(4)) part.split = row_cut ? wr::parallel::replicated : *rc::gen::element(wr::parallel::replicated, wr::parallel::column);
    if (row_cut && part.split) part.cols = local_cols;  // all shards of a param are equally wide here
    const bool column = part.split.value_or(sizes.split) == wr::parallel::column;
    int parts = sizes.tp.size;
    if (column && chance(2))
      for (part.parts = upto(1, sizes.tp.size); sizes.tp.size % part.parts != 0;) --part.parts;
    if (part.parts > 0) parts = part.parts;
    part.rows = upto(0, 6) * (column ? parts : 1);
    const std::int64_t given = chance(3) ? upto(0, static_cast<int>(part.rows)) : part.rows;
    if (given < part.rows) part.checkpoint_rows = given;
    if (chance(3)) {
      part.tensor_row_begin = upto(0, 4);
      part.tensor_rows = part.tensor_row_begin + given + upto(0, 4);
    }
    if (chance(3)) part.grid_rows = upto(1, 9);
    sizes.shards.push_back(part);
  }
  if (chance(3)) {
    sizes.experts = wr::expert_slots{upto(1, 4), {}};
    const int slots = upto(0, 4);
    for (int i = 0; i < slots; ++i)
      sizes.experts->local.push_back(upto(0, static_cast<int>(sizes.experts->total) - 1));
  }
  return layer;
}

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
  CHECK(plan.sources.empty());
  return error.message();
}

const wr::planned_source& source_named(const wr::layer_plan& plan, const std::string& name) {
  for (const wr::planned_source& source : plan.sources)
    if (source.name == name) return source;
  FAIL("no source " << name);
  return plan.sources.front();
}

}  // namespace

TEST_CASE("every element of storage holds the checkpoint element that it should") {
  property("landings against a loop over local rows", [] {
    const random_layer layer = any_layer();
    for (int rank = 0; rank < layer.sizes.tp.size; ++rank) {
      wr::extents sizes = layer.sizes;
      sizes.tp.rank = rank;
      wr::layer_plan plan;
      const wr::status error = wr::plan_layer(block_fp8(layer.block_rows, layer.block_cols), "layer", sizes, plan);
      RC_ASSERT(error.ok());
      filled_param weight = fill(plan, plan.params[0]);
      const auto slots = sizes.experts ? sizes.experts->local : std::vector<std::int64_t>{-1};
      std::int64_t row = 0;
      for (const std::int64_t expert : slots)
        for (const wr::shard& part : sizes.shards) {
          const std::string prefix = expert < 0 ? part.module : "layer." + std::to_string(expert) + "." + part.module;
          const wr::parallel how = part.split.value_or(sizes.split);
          const std::int64_t parts = how != wr::parallel::column ? 1 : part.parts > 0 ? part.parts : sizes.tp.size;
          const std::int64_t mine = how != wr::parallel::column ? 0 : sizes.tp.rank * parts / sizes.tp.size;
          const std::int64_t given = part.checkpoint_rows < 0 ? part.rows : part.checkpoint_rows;
          const std::int64_t first_col = how == wr::parallel::row ? sizes.tp.rank * weight.cols : 0;
          for (std::int64_t i = 0; i < part.rows / parts; ++i, ++row)
            for (std::int64_t c = 0; c < weight.cols; ++c) {
              const std::int64_t global = mine * (part.rows / parts) + i;
              const origin expected = global < given
                                          ? origin{prefix + ".weight", part.tensor_row_begin + global, first_col + c}
                                          : origin{"pad", 0, 0};
              RC_ASSERT(weight.at(row, c) == expected);
            }
        }
      RC_ASSERT(row == weight.rows);
    }
  });
}

TEST_CASE("every needed element finds the scale block of its checkpoint element") {
  property("scale links against r // R and c // C", [] {
    const random_layer layer = any_layer();
    const auto check = [&](int rank, int R, int C) {
      wr::extents sizes = layer.sizes;
      sizes.tp.rank = rank;
      wr::layer_plan plan;
      RC_ASSERT(wr::plan_layer(block_fp8(R, C), "layer", sizes, plan).ok());
      const wr::planned_param& weight = plan.params[0];
      const wr::planned_param& scale = plan.params[1];
      filled_param scales = fill(plan, scale);
      RC_ASSERT(scale.pads.empty());
      std::map<std::string, std::int64_t> grid_of;  // checkpoint tensor -> rows of one grid, 0: one grid
      for (const wr::shard& part : sizes.shards)
        for (std::int64_t expert = -1; expert < (sizes.experts ? sizes.experts->total : 0); ++expert)
          grid_of[(expert < 0 ? part.module : "layer." + std::to_string(expert) + "." + part.module)] = part.grid_rows;
      std::set<std::int32_t> linked;
      for (const wr::planned_landing& landing : weight.landings) {
        RC_ASSERT(landing.scale >= 0 && landing.scale < static_cast<std::int32_t>(scale.landings.size()));
        RC_ASSERT(linked.insert(landing.scale).second);  // no two weights on one scale row (vllm#52997)
        const wr::planned_landing& grid = scale.landings[static_cast<std::size_t>(landing.scale)];
        RC_ASSERT(landing.row_phase >= 0 && landing.row_phase < R && landing.col_phase >= 0 && landing.col_phase < C);
        const std::string tensor = plan.sources[static_cast<std::size_t>(landing.source)].name;
        const std::string module = tensor.substr(0, tensor.size() - std::string(".weight").size());
        const std::int64_t grid_rows = grid_of.at(module);
        std::set<std::pair<std::int64_t, std::int64_t>> touched;
        for (std::int64_t r = landing.needed.row_begin; r < landing.needed.row_end; ++r)
          for (std::int64_t c = landing.needed.col_begin; c < landing.needed.col_end; ++c) {
            const std::int64_t at_row = grid.local_row + (landing.row_phase + r - landing.needed.row_begin) / R;
            const std::int64_t at_col = (landing.col_phase + c - landing.needed.col_begin) / C;
            RC_ASSERT(at_row < grid.local_row + grid.needed.rows() && at_col < grid.needed.cols());
            std::int64_t block_row = r / R;
            if (grid_rows > 0) {  // count the blocks of the grids before, one by one
              block_row = (r % grid_rows) / R;
              for (std::int64_t before = 0; before + grid_rows <= r; before += grid_rows)
                for (std::int64_t i = 0; i < grid_rows; i += R) ++block_row;
            }
            RC_ASSERT((scales.at(at_row, at_col) == origin{module + ".weight_scale_inv", block_row, c / C}));
            touched.insert({at_row, at_col});
          }
        RC_ASSERT(static_cast<std::int64_t>(touched.size()) == grid.needed.elements());  // no block too many
    }
    RC_ASSERT(linked.size() == scale.landings.size());
    };
    for (int rank = 0; rank < layer.sizes.tp.size; ++rank)
      for (const auto& [R, C] : {std::pair(layer.block_rows, layer.block_cols), std::pair(2, 3), std::pair(4, 2), std::pair(7, 1)})
        check(rank, R, C);
  });
}

TEST_CASE("a slice [a, a+n) has first block a // b, ceil((a+n)/b) - a // b blocks and phase a % b") {
  property("against counting blocks", [] {
    const auto block = *rc::gen::inRange(1, 9);
    const auto ranks = *rc::gen::inRange(1, 6);
    const auto width = *rc::gen::inRange<std::int64_t>(1, 20);
    const auto rank = *rc::gen::inRange(0, ranks);
    const auto rows_or_cols = *rc::gen::arbitrary<bool>();
    const std::int64_t total = width * ranks, begin = width * rank;
    const wr::extents sizes =
        rows_or_cols ? wr::extents::matrix("m", total, 3).cut(wr::parallel::column, {ranks, rank})
                     : wr::extents::matrix("m", 3, total).cut(wr::parallel::row, {ranks, rank});
    wr::layer_plan plan;
    RC_ASSERT(wr::plan_layer(block_fp8(rows_or_cols ? block : 3, rows_or_cols ? 3 : block), "layer", sizes, plan).ok());
    const wr::planned_landing& weight = plan.params[0].landings.at(0);
    const wr::rect blocks = plan.params[1].landings.at(0).needed;
    std::set<std::int64_t> touched;
    for (std::int64_t i = begin; i < begin + width; ++i) touched.insert(i / block);
    RC_ASSERT((rows_or_cols ? blocks.row_begin : blocks.col_begin) == *touched.begin());
    RC_ASSERT((rows_or_cols ? blocks.rows() : blocks.cols()) == static_cast<std::int64_t>(touched.size()));
    RC_ASSERT((rows_or_cols ? weight.row_phase : weight.col_phase) == begin % block);
    RC_ASSERT((rows_or_cols ? weight.col_phase : weight.row_phase) == 0);
  });
}

TEST_CASE("over all ranks each checkpoint element is needed as often as the cut says") {
  property("union over ranks", [] {
    const random_layer layer = any_layer();
    const int ranks = layer.sizes.tp.size;
    std::map<std::tuple<std::string, std::int64_t, std::int64_t>, int> times;
    for (int rank = 0; rank < ranks; ++rank) {
      wr::extents sizes = layer.sizes;
      sizes.tp.rank = rank;
      wr::layer_plan plan;
      RC_ASSERT(wr::plan_layer(block_fp8(layer.block_rows, layer.block_cols), "layer", sizes, plan).ok());
      for (const wr::planned_landing& landing : plan.params[0].landings)
        for (std::int64_t r = landing.needed.row_begin; r < landing.needed.row_end; ++r)
          for (std::int64_t c = landing.needed.col_begin; c < landing.needed.col_end; ++c)
            ++times[{plan.sources[static_cast<std::size_t>(landing.source)].name, r, c}];
    }
    const auto slots = layer.sizes.experts ? layer.sizes.experts->local : std::vector<std::int64_t>{-1};
    std::map<std::tuple<std::string, std::int64_t, std::int64_t>, int> expected;
    for (const std::int64_t expert : slots)
      for (const wr::shard& part : layer.sizes.shards) {
        const wr::parallel how = part.split.value_or(layer.sizes.split);
        const int copies = how == wr::parallel::replicated ? ranks
                           : how == wr::parallel::row      ? 1
                           : part.parts > 0                ? ranks / part.parts
                                                           : 1;
        const std::int64_t given = part.checkpoint_rows < 0 ? part.rows : part.checkpoint_rows;
        const std::int64_t cols = part.cols < 0 ? layer.sizes.inner[0] : part.cols;
        const std::string prefix = expert < 0 ? part.module : "layer." + std::to_string(expert) + "." + part.module;
        for (std::int64_t r = 0; r < given; ++r)
          for (std::int64_t c = 0; c < cols; ++c) expected[{prefix + ".weight", part.tensor_row_begin + r, c}] += copies;
      }
    RC_ASSERT(times == expected);
  });
}

TEST_CASE("fused shards: one scale row per started block of each shard") {  // failures.md, worked table
  struct row {
    std::vector<std::int64_t> partitions;
    std::vector<std::int64_t> scale_rows;
  };
  const std::vector<row> table = {{{2048, 576}, {16, 5}},     {{192, 192}, {2, 2}},   {{384, 64, 64}, {3, 1, 1}},
                                  {{64, 64, 64, 64}, {1, 1, 1, 1}}, {{192, 128}, {2, 1}}, {{64, 128}, {1, 1}},
                                  {{192, 192, 192}, {2, 2, 2}}};
  for (const row& known : table) {
    wr::extents sizes{.inner = {256}};
    for (std::size_t i = 0; i < known.partitions.size(); ++i)
      sizes.shards.push_back({.module = "m" + std::to_string(i), .rows = known.partitions[i]});
    const auto plan = plan_of(block_fp8(128, 128), sizes);
    const auto& scale = plan.params[1];
    std::int64_t total = 0;
    REQUIRE(scale.landings.size() == known.partitions.size());
    for (std::size_t i = 0; i < known.partitions.size(); ++i) {
      CHECK(scale.landings[i].local_row == total);
      CHECK(scale.landings[i].needed == wr::rect{0, known.scale_rows[i], 0, 2});
      CHECK(source_named(plan, "m" + std::to_string(i) + ".weight_scale_inv").extents == wr::shape{known.scale_rows[i], 2});
      total += known.scale_rows[i];
    }
    CHECK(scale.rows == total);
    CHECK(scale.extents == wr::shape{total, 2});
  }
}

TEST_CASE("row-parallel: a rank that starts inside a block shares its scale column") {
  const auto needs = [](std::int64_t cols, int ranks, int rank) {
    const auto plan = plan_of(block_fp8(128, 128), wr::extents::matrix("o", 128, cols).cut(wr::parallel::row, {ranks, rank}));
    const wr::rect blocks = plan.params[1].landings[0].needed;
    return std::array<std::int64_t, 3>{blocks.col_begin, blocks.col_end, plan.params[0].landings[0].col_phase};
  };
  CHECK(needs(256, 4, 0) == std::array<std::int64_t, 3>{0, 1, 0});  // 64 columns each
  CHECK(needs(256, 4, 1) == std::array<std::int64_t, 3>{0, 1, 64});
  CHECK(needs(256, 4, 2) == std::array<std::int64_t, 3>{1, 2, 0});
  CHECK(needs(256, 4, 3) == std::array<std::int64_t, 3>{1, 2, 64});
  CHECK(needs(1408, 2, 0) == std::array<std::int64_t, 3>{0, 6, 0});  // 704 columns each
  CHECK(needs(1408, 2, 1) == std::array<std::int64_t, 3>{5, 11, 64});
  CHECK(needs(3072, 2, 1) == std::array<std::int64_t, 3>{12, 24, 0});  // vllm-omni#5761
}

TEST_CASE("fewer parts than ranks: weight and scale of the shared slice come to each replica") {
  for (int rank = 0; rank < 8; ++rank) {
    wr::extents sizes{.shards = {{.module = "k", .rows = 2 * 192, .parts = 2}}, .inner = {256}};
    const auto plan = plan_of(block_fp8(128, 128), sizes.cut(wr::parallel::column, {8, rank}));
    const std::int64_t head = rank / 4;
    CHECK(plan.params[0].landings[0].needed == wr::rect{head * 192, head * 192 + 192, 0, 256});
    CHECK(plan.params[0].landings[0].row_phase == head * 64);
    CHECK(plan.params[1].landings[0].needed == (head == 0 ? wr::rect{0, 2, 0, 2} : wr::rect{1, 3, 0, 2}));
  }
}

TEST_CASE("fewer checkpoint rows than runtime rows: the rest is pad, and so is a rank that owns nothing else") {
  wr::extents sizes{.shards = {{.module = "embed", .rows = 8, .checkpoint_rows = 3}}, .inner = {5}};
  const auto first = plan_of(block_fp8(2, 2), sizes.cut(wr::parallel::column, {2, 0}));
  REQUIRE(first.params[0].pads.size() == 1);
  CHECK(first.params[0].pads[0].local_row == 3);
  CHECK(first.params[0].pads[0].rows == 1);
  const auto last = plan_of(block_fp8(2, 2), sizes.cut(wr::parallel::column, {2, 1}));
  CHECK(last.params[0].landings.empty());
  REQUIRE(last.params[0].pads.size() == 1);
  CHECK(last.params[0].pads[0].rows == 4);
  CHECK(last.params[1].rows == 0);
  // The tensor is known by name and shape all the same.
  CHECK(source_named(last, "embed.weight").extents == wr::shape{3, 5});
}

TEST_CASE("zero rotary rows of the middle shard stay between its neighbours") {
  const auto plan = plan_of(block_fp8(128, 128), {.shards = {{.module = "q_a", .rows = 1536},
                                                             {.module = "kv_a", .rows = 576, .checkpoint_rows = 512},
                                                             {.module = "third", .rows = 10}},
                                                  .inner = {256}});
  const auto& weight = plan.params[0];
  REQUIRE(weight.landings.size() == 3);
  REQUIRE(weight.pads.size() == 1);
  CHECK(weight.pads[0].local_row == 2048);
  CHECK(weight.pads[0].rows == 64);
  CHECK(weight.landings[2].local_row == 2112);
  CHECK(plan.params[1].landings[1].needed.rows() == 4);
}

TEST_CASE("stacked experts: a rank's list, a replica, and experts that others hold") {
  const auto plan = plan_of(block_fp8(2, 2), {.shards = {{.module = "gate", .rows = 3}, {.module = "up", .rows = 2}},
                                              .inner = {4},
                                              .experts = wr::expert_slots{4, {2, 0, 2}}});
  const auto& weight = plan.params[0];
  CHECK(weight.extents == wr::shape{3, 5, 4});
  CHECK(weight.rows == 15);
  REQUIRE(weight.landings.size() == 6);
  const auto source = [&](std::size_t i) { return plan.sources[static_cast<std::size_t>(weight.landings[i].source)].name; };
  CHECK(source(0) == "layer.2.gate.weight");
  CHECK(source(1) == "layer.2.up.weight");
  CHECK(source(2) == "layer.0.gate.weight");
  CHECK(source(4) == source(0));  // the replica: same tensor, own slot (prime-rl#3583)
  CHECK(weight.landings[4].source == weight.landings[0].source);
  CHECK(weight.landings[4].local_row == 10);
  CHECK(plan.params[1].extents == wr::shape{3, 3, 2});
  for (const char* absent : {"layer.1.gate.weight", "layer.3.gate.weight"})
    CHECK(source_named(plan, absent).extents == wr::shape{3, 4});
  CHECK(source_named(plan, "layer.3.up.weight_scale_inv").extents == wr::shape{1, 2});
  CHECK(plan.sources.size() == 4 * 2 * 2);  // every expert once, replicas share
}

TEST_CASE("a rank without experts knows them all and needs none") {
  const auto plan = plan_of(plain, {.shards = {{.module = "gate", .rows = 3}},
                                    .inner = {4},
                                    .experts = wr::expert_slots{2, {}},
                                    .type = wr::dtype::bf16});
  CHECK(plan.params[0].rows == 0);
  CHECK(plan.params[0].bytes() == 0);
  CHECK(plan.params[0].landings.empty());
  CHECK(plan.sources.size() == 2);
}

TEST_CASE("expert-parallel lists are the whole model once (sglang#22787, vllm#51130)") {
  std::set<std::string> needed;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    wr::expert_slots slots{128, {}};
    for (std::int64_t i = 0; i < 16; ++i) slots.local.push_back(rank * 16 + i);
    const auto plan = plan_of(plain, {.shards = {{.module = "gate", .rows = 3}}, .inner = {4}, .experts = slots, .type = wr::dtype::bf16});
    CHECK(plan.params[0].extents == wr::shape{16, 3, 4});
    for (const auto& landing : plan.params[0].landings)
      CHECK(needed.insert(plan.sources[static_cast<std::size_t>(landing.source)].name).second);
  }
  CHECK(needed.size() == 128);
}

TEST_CASE("a module named twice is one tensor with two landings") {
  const auto plan = plan_of(block_fp8(2, 2), {.shards = {{.module = "qkv", .rows = 4, .tensor_rows = 10},
                                                         {.module = "qkv", .rows = 6, .tensor_rows = 10, .tensor_row_begin = 4}},
                                              .inner = {4}});
  CHECK(plan.sources.size() == 2);
  CHECK(plan.params[0].landings[0].source == plan.params[0].landings[1].source);
  CHECK(plan.params[0].landings[1].needed == wr::rect{4, 10, 0, 4});
}

TEST_CASE("a fused-on-disk tensor has one shape, also for the planner") {
  const wr::extents sizes{.shards = {{.module = "qkv", .rows = 4, .tensor_rows = 10},
                                     {.module = "qkv", .rows = 6, .tensor_rows = 20, .tensor_row_begin = 14}},
                          .inner = {4}};
  CHECK(refusal(block_fp8(2, 2), sizes).find("qkv") == 0);
}

TEST_CASE("grids of one tensor agree, too") {
  const wr::extents sizes{.shards = {{.module = "qkv", .rows = 4, .tensor_rows = 10, .grid_rows = 5},
                                     {.module = "qkv", .rows = 6, .tensor_rows = 10, .tensor_row_begin = 4}},
                          .inner = {4}};
  CHECK(refusal(block_fp8(2, 2), sizes).find("qkv") == 0);
}

TEST_CASE("refusals name the checkpoint module") {
  using wr::parallel;
  const auto specs = block_fp8(128, 128);
  wr::extents fused{.shards = {{.module = "q_a", .rows = 8}, {.module = "kv_a", .rows = 6}}, .inner = {4}};
  CHECK(refusal(specs, fused.cut(parallel::column, {4, 0})) == "kv_a: expected rows that 4 column-parallel parts divide, got 6");
  CHECK(refusal(specs, fused.cut(parallel::row, {3, 0})) == "q_a: expected columns that 3 row-parallel ranks divide, got 4");
  fused.shards[1].cols = 5;
  CHECK(refusal(specs, fused) == "kv_a: expected columns [4] as in q_a, got [5]");
  fused.shards[1] = {.module = "kv_a", .rows = 6, .tensor_rows = 5};
  CHECK(refusal(specs, fused) == "kv_a: expected rows inside a tensor of 5 rows, got 6 rows from row 0 on");
  CHECK(refusal(specs, {.inner = {4}}) == "layer: expected at least one shard, got none");
}

TEST_CASE("refusals of stacked layers") {
  wr::extents sizes{.shards = {{.module = "gate_proj", .rows = 4}}, .inner = {4}, .experts = wr::expert_slots{4, {0, 4}}};
  CHECK(refusal(block_fp8(2, 2), sizes) == "layer: expected experts below 4, got 4");
  sizes.experts->local = {-1};
  CHECK(refusal(block_fp8(2, 2), sizes) == "layer: expected experts below 4, got -1");
  sizes.experts = wr::expert_slots::all(4);
  const std::string indivisible = refusal(block_fp8(2, 2), sizes.cut(wr::parallel::column, {3, 0}));
  CHECK(indivisible.find("gate_proj: expected rows that 3 column-parallel parts divide, got 4") != std::string::npos);
  auto specs = block_fp8(2, 2);
  static constexpr std::string_view modules[] = {"gate_proj", "up_proj"};
  specs[0].modules = modules;
  CHECK(refusal(specs, sizes) == "layer.weight: expected a shard for module up_proj, got none");
}

TEST_CASE("a negative number of experts is refused, not thrown") {
  wr::extents sizes{.shards = {{.module = "gate_proj", .rows = 4}}, .inner = {4}, .experts = wr::expert_slots{-1, {}}};
  CHECK(refusal(block_fp8(2, 2), sizes).find("layer") == 0);
}

TEST_CASE("sizes that overflow are refused, with and without checkpoint rows") {
  const auto specs = block_fp8(128, 128);
  const std::int64_t big = std::int64_t{1} << 58;
  CHECK(refusal(specs, wr::extents::matrix("q", huge, 4)).find("q: ") == 0);
  CHECK(refusal(specs, wr::extents::matrix("q", big, 4)).find("q: ") == 0);
  // Each shard fits, together they do not.
  refusal(specs, {.shards = {{.module = "a", .rows = big}, {.module = "b", .rows = big}, {.module = "c", .rows = big},
                             {.module = "d", .rows = big}}, .inner = {1}});
  // Rows that only the runtime has.
  refusal(specs, {.shards = {{.module = "a", .rows = huge, .checkpoint_rows = 1}}, .inner = {4}});
  refusal(specs, {.shards = {{.module = "a", .rows = huge, .checkpoint_rows = 1}, {.module = "b", .rows = huge, .checkpoint_rows = 1}},
                  .inner = {1}});
  // Slots multiply.
  refusal(specs, {.shards = {{.module = "a", .rows = big}}, .inner = {1}, .experts = wr::expert_slots::all(8)});
}

TEST_CASE("a grid larger than the tensor is one grid, however large") {
  const auto plan = plan_of(block_fp8(2, 2), {.shards = {{.module = "a", .rows = 5, .grid_rows = huge}}, .inner = {4}});
  CHECK(plan.params[1].extents == wr::shape{3, 2});
}

TEST_CASE("a param without a dtype takes the extents', and what it accepts must widen") {
  CHECK(refusal(plain, wr::extents::matrix("a", 1, 1)) == "layer: expected a dtype in the extents, got none");
  wr::extents sizes = wr::extents::tensor("a", {3, 4}, wr::dtype::bf16);
  sizes.accepts = wr::dtype::fp32;
  CHECK(refusal(plain, sizes) == "layer: expected accepted dtypes that widen exactly to BF16, got F32");
  sizes.type = wr::dtype::fp32;
  sizes.accepts = wr::dtype::bf16;
  const auto plan = plan_of(plain, sizes);
  CHECK(plan.params[0].spec.accepted == (wr::dtype_set(wr::dtype::fp32) | wr::dtype::bf16));
  CHECK(plan.params[0].name == "layer");
  CHECK(plan.sources[0].name == "a");
}

TEST_CASE("a runtime shape of the same elements; of others it is refused") {
  wr::extents sizes = wr::extents::tensor("A_log", {64}, wr::dtype::fp32).cut(wr::parallel::column, {4, 1});
  sizes.runtime_shape = wr::shape{1, 1, 16, 1};
  const auto plan = plan_of(plain, sizes);
  CHECK(plan.params[0].extents == wr::shape{1, 1, 16, 1});
  CHECK(plan.params[0].landings[0].needed == wr::rect{16, 32, 0, 1});
  sizes.runtime_shape = wr::shape{1, 1, 64, 1};
  CHECK(refusal(plain, sizes) == "layer: expected 16 elements in the runtime shape, got [1, 1, 64, 1]");
}

TEST_CASE("a tensor keeps its rank, up to the most that a shape has") {
  for (const wr::shape& dims : {wr::shape{}, wr::shape{7}, wr::shape{2, 3}, wr::shape{1024, 3, 2, 14, 14},
                                wr::shape{2, 1, 1, 1, 1, 1, 1, 3}}) {
    const auto plan = plan_of(plain, wr::extents::tensor("x", dims, wr::dtype::bf16));
    CAPTURE(wr::to_string(dims));
    CHECK(plan.params[0].extents == dims);
    CHECK(plan.params[0].bytes() == dims.elements() * 2);
    CHECK(plan.sources[0].extents == dims);
  }
}

TEST_CASE("more dims than a shape has are refused, never dropped") {
  const wr::shape seven{1, 1, 1, 1, 1, 1, 3};
  wr::extents sizes{.shards = {{.module = "a", .rows = 2}}, .inner = seven, .experts = wr::expert_slots::all(2), .type = wr::dtype::bf16};
  CHECK(refusal(plain, sizes) == "layer: expected at most 8 dims, got 9");
  sizes.experts.reset();
  sizes.inner.push_back(5);
  CHECK(refusal(plain, sizes) == "a: expected at most 8 dims, got 9");
}

TEST_CASE("empty tensors plan without landings") {
  for (const wr::shape& dims : {wr::shape{0}, wr::shape{0, 5}, wr::shape{5, 0}}) {
    const auto plan = plan_of(plain, wr::extents::tensor("x", dims, wr::dtype::bf16));
    CHECK(plan.params[0].landings.empty());
    CHECK(plan.params[0].bytes() == 0);
  }
}
