#pragma once
/// Extents: what a layer's rows are made of, and which part of them this rank holds.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../core/box.hpp"
#include "../core/dtype.hpp"
#include "../core/on_use.hpp"
#include "../core/shape.hpp"
#include "../core/status.hpp"

namespace wreload {

/// How a shard is cut over tensor-parallel ranks: not at all, along dim 0, or along dim 1.
enum class parallel : std::uint8_t { replicated, column, row };

/// This rank's place in a tensor-parallel group.
struct tensor_parallel {
  int size = 1;
  int rank = 0;
};

/// One checkpoint module fused into a layer along dim 0. All counts are rows of the *whole* tensor, before any cut.
struct shard {
  std::string module = {};               ///< checkpoint module (`model.layers.0.self_attn.q_a_proj`); in a stacked
                                         ///< layer the module behind the expert (`gate_proj`)
  std::int64_t rows = 0;                 ///< rows in runtime storage
  std::int64_t cols = -1;                ///< columns, where the shards of a stacked layer differ; -1: the extents'
  std::int64_t checkpoint_rows = -1;     ///< rows that the checkpoint brings, <= rows; the rest is pad. -1: all
  std::string bundle = {};               ///< stacked layers: the checkpoint module of one tensor for all experts,
                                         ///< `<layer>.<bundle>.<leaf>` [experts, tensor rows, cols]. Empty: one tensor
                                         ///< an expert. `gate_up_proj` may be the bundle of two shards
  std::int64_t tensor_rows = -1;         ///< dim 0 of the checkpoint tensor where the shard is part of one that is
                                         ///< fused on disk; -1: checkpoint_rows
  std::int64_t tensor_row_begin = 0;     ///< where in that tensor the shard starts
  std::int64_t grid_rows = 0;            ///< the tensor's scales come as one grid per this many rows; 0: one grid
  std::optional<parallel> split = {};    ///< overrides the layer's (a replicated shard in a column-parallel layer)
  int parts = 0;                         ///< distinct slices of a column cut; fewer than ranks: KV heads shared by
                                         ///< neighbouring ranks, rank r holds slice r / (size / parts). 0: one a rank
};

/// The experts of a stacked layer, in slot order; a global expert may stand in several slots (replicas).
struct expert_slots {
  std::int64_t total = 0;                 ///< experts of the model
  std::vector<std::int64_t> local = {};   ///< global expert of each slot of this rank
  std::string shared = {};                ///< checkpoint module of a shared expert (`model.layers.3.mlp.shared_experts`)
                                          ///< that runs as one more slot behind the local ones; empty: none

  /// All experts, slot i holds expert i.
  static expert_slots all(std::int64_t count) {
    expert_slots slots{count, std::vector<std::int64_t>(static_cast<std::size_t>(count))};
    for (std::int64_t i = 0; i < count; ++i) slots.local[static_cast<std::size_t>(i)] = i;
    return slots;
  }
};

/// The sizes of one layer.
///
///   shards   modules in row order
///   inner    dims of the checkpoint tensors behind dim 0: {cols} for a matrix, {} for a vector, {1, 4} for a filter
///   split    how shards are cut unless they say otherwise
///   experts  set for a stacked layer: rows repeat per slot
struct extents {
  std::vector<shard> shards = {};
  shape inner = {};
  parallel split = parallel::replicated;
  tensor_parallel tp = {};
  std::optional<expert_slots> experts = {};

  // For a layout whose param has no dtype of its own (`Plain`):
  dtype type = dtype::none;         ///< runtime dtype
  dtype_set accepts = {};           ///< further dtypes that widen to it
  bool scalar = false;              ///< the checkpoint tensor has rank 0
  std::optional<shape> runtime_shape = {};  ///< another shape of the same elements (`[64]` kept as `[1, 1, 64, 1]`)

  /// One unfused matrix (rows, cols) of a module.
  static extents matrix(std::string module, std::int64_t rows, std::int64_t cols) {
    return {.shards = {{.module = std::move(module), .rows = rows}}, .inner = {cols}};
  }

  /// One tensor of any shape, for `Plain`; `module` is the tensor's name.
  static extents tensor(std::string module, const shape& dims, dtype type) {
    extents result{.shards = {{.module = std::move(module), .rows = dims.rows()}}, .type = type};
    result.scalar = dims.rank() == 0;
    for (int dim = 1; dim < dims.rank(); ++dim) result.inner.push_back(dims[dim]);
    return result;
  }

  /// The same extents, cut for a rank.
  extents cut(parallel how, tensor_parallel group) const {
    extents result = *this;
    result.split = how;
    result.tp = group;
    return result;
  }
};

/// This rank's part of one shard.
///
///   needed     rows and columns of the checkpoint tensor's matrix form
///   local_rows storage rows, pads included; the needed rows come first
struct shard_slice {
  rect needed = {};
  std::int64_t local_rows = 0;
  std::int64_t tensor_rows = 0;  ///< dim 0 of the whole checkpoint tensor
  shape tensor_inner = {};       ///< its further dims
  shape local_inner = {};        ///< further dims of this rank's part
};

/// Cuts a shard for a rank; refuses by the module's name what the cut cannot give.
template <class = on_use>
[[nodiscard]] status slice_shard(const shard& part, const extents& layer, shard_slice& slice) {
  const auto bad = [&](std::string expected, std::string got) {
    return refuse(error_code::bad_layout, part.module, std::move(expected), std::move(got));
  };
  const auto count = [](std::int64_t value) { return std::to_string(value); };
  const std::int64_t given = part.checkpoint_rows < 0 ? part.rows : part.checkpoint_rows;
  const std::int64_t tensor_rows = part.tensor_rows < 0 ? given : part.tensor_rows;
  if (part.rows < 0 || given > part.rows)
    return bad("at most " + count(part.rows) + " checkpoint rows", count(given));
  if (part.tensor_row_begin < 0 || given > tensor_rows - part.tensor_row_begin)
    return bad("rows inside a tensor of " + count(tensor_rows) + " rows",
               count(given) + " rows from row " + count(part.tensor_row_begin) + " on");
  if (layer.tp.size < 1 || layer.tp.rank < 0 || layer.tp.rank >= layer.tp.size)
    return bad("a rank below the group's size", "rank " + count(layer.tp.rank) + " of " + count(layer.tp.size));
  if (part.grid_rows < 0) return bad("grid_rows of 0 or more", count(part.grid_rows));

  slice.tensor_rows = tensor_rows;
  slice.tensor_inner = part.cols < 0 ? layer.inner : shape{part.cols};
  slice.local_inner = slice.tensor_inner;
  if (slice.tensor_inner.rank() >= max_rank)
    return bad("at most " + count(max_rank) + " dims", count(slice.tensor_inner.rank() + 1));
  shape whole{tensor_rows};
  for (const std::int64_t dim : slice.tensor_inner.dims()) whole.push_back(dim);
  if (!whole.valid()) return bad("a shape that fits in memory", to_string(whole));
  std::int64_t begin = 0;
  slice.local_rows = part.rows;
  slice.needed = {0, given, 0, whole.cols()};

  const parallel how = part.split.value_or(layer.split);
  const std::int64_t ranks = layer.tp.size;
  if (how == parallel::column) {
    const std::int64_t parts = part.parts == 0 ? ranks : part.parts;
    if (parts < 1 || ranks % parts != 0)
      return bad("a number of parts that divides " + count(ranks) + " ranks", count(parts));
    if (part.rows % parts != 0)
      return bad("rows that " + count(parts) + " column-parallel parts divide", count(part.rows));
    slice.local_rows = part.rows / parts;
    begin = layer.tp.rank / (ranks / parts) * slice.local_rows;
    slice.needed.row_begin = std::min(begin, given);
    slice.needed.row_end = std::min(begin + slice.local_rows, given);
  } else if (how == parallel::row && slice.tensor_inner.rank() > 0) {
    const std::int64_t dim = slice.tensor_inner[0];
    if (dim % ranks != 0) return bad("columns that " + count(ranks) + " row-parallel ranks divide", count(dim));
    slice.local_inner[0] = dim / ranks;
    const std::int64_t width = whole.cols() / ranks;
    slice.needed.col_begin = layer.tp.rank * width;
    slice.needed.col_end = slice.needed.col_begin + width;
  }
  slice.needed.row_begin += part.tensor_row_begin;
  slice.needed.row_end += part.tensor_row_begin;
  return {};
}

}  // namespace wreload
