#pragma once
/// The plain reference for loading: what each runtime tensor holds after a cold start, element by element.
///
/// No ledger, no landing, no layout of the library: a `layer` says in plain numbers what is fused and cut, and loops
/// over rows and columns say which checkpoint element (or pad) each runtime element comes from. Slow on purpose.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "numerics.hpp"

namespace reference {

using dims = std::vector<std::int64_t>;

inline std::int64_t product(const dims& sizes) {
  std::int64_t all = 1;
  for (const std::int64_t size : sizes) all *= size;
  return all;
}

/// A checkpoint tensor, row-major.
struct tensor {
  dtype type = dtype::none;
  dims sizes = {};
  std::vector<std::byte> bytes = {};
};
/// The logical checkpoint: canonical names (`weight_scale_inv`, never a second spelling).
using checkpoint = std::map<std::string, tensor>;

enum class kind { plain, linear, moe };
enum class cut { whole, column, row };

/// One checkpoint module in a layer; every count is of the whole tensor.
struct shard {
  std::string module = {};
  std::int64_t rows = 0;              ///< in runtime storage, all ranks
  std::int64_t checkpoint_rows = 0;   ///< that the checkpoint brings; the rest is zero
  std::int64_t tensor_rows = 0;       ///< of the checkpoint tensor that holds them
  std::int64_t tensor_row_begin = 0;  ///< first of them in that tensor
  std::int64_t grid_rows = 0;         ///< rows with a scale grid of their own; 0: the tensor has one grid
  cut split = cut::whole;
  int parts = 0;          ///< distinct slices of a column cut; 0: one a rank
  std::int64_t cols = 0;  ///< only in a stacked layer
};

struct layer {
  kind what = kind::plain;
  std::string name = {};
  std::vector<shard> shards = {};  ///< stacked: gate_proj, up_proj, down_proj
  dims inner = {};                 ///< dims behind dim 0 (not stacked)
  int tp_size = 1;
  int tp_rank = 0;
  int block_rows = 128;
  int block_cols = 128;
  std::int64_t experts_total = 0;
  std::vector<std::int64_t> experts_local = {};
  dtype type = dtype::bf16;         ///< runtime dtype of a plain layer
  std::vector<dtype> accepts = {};  ///< further dtypes that a plain layer widens
  bool scalar = false;
  dims runtime_sizes = {};  ///< another shape of the same elements; empty: none
};

/// A checkpoint tensor that a layer reads.
struct source {
  std::string name = {};
  dims sizes = {};
  bool is_scale = false;
  std::string scale = {};  ///< of a weight
};

/// Where one runtime element comes from; source -1: a pad, zero.
struct origin {
  std::int32_t source = -1;
  std::int64_t row = 0;
  std::int64_t col = 0;
};

struct runtime_tensor {
  std::string name = {};
  dtype type = dtype::none;
  dims sizes = {};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool retired = false;
  std::vector<std::string> sources = {};
  std::vector<origin> elements = {};  ///< rows * cols
  int block_rows = 0;                 ///< of the scale, for a weight that may come as FP8
  int block_cols = 0;
  std::vector<std::int64_t> grid_rows = {};  ///< per source
};

inline std::int64_t blocks(std::int64_t elements, std::int64_t block) { return (elements + block - 1) / block; }

/// Scale rows of a tensor whose scales come as one grid per `grid` rows.
inline std::int64_t scale_rows(std::int64_t tensor_rows, std::int64_t grid, int block) {
  if (grid == 0) return blocks(tensor_rows, block);
  std::int64_t total = 0;
  for (std::int64_t first = 0; first < tensor_rows; first += grid)
    total += blocks(first + grid > tensor_rows ? tensor_rows - first : grid, block);
  return total;
}

/// The scale row of one tensor row: rows of earlier grids, then the block inside the row's own grid.
inline std::int64_t scale_row(std::int64_t row, std::int64_t grid, int block) {
  if (grid == 0) return row / block;
  return row / grid * blocks(grid, block) + row % grid / block;
}

inline std::string module_name(const layer& of, const shard& part, std::int64_t expert) {
  return of.what == kind::moe ? of.name + "." + std::to_string(expert) + "." + part.module : part.module;
}

/// Every checkpoint tensor that a layer knows, those of absent experts too.
inline std::vector<source> sources_of(const layer& of) {
  std::map<std::string, source> found;
  const std::int64_t experts = of.what == kind::moe ? of.experts_total : 1;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    for (const shard& part : of.shards) {
      dims sizes = of.scalar ? dims{} : dims{part.tensor_rows};
      if (of.what == kind::moe) sizes.push_back(part.cols);
      if (of.what != kind::moe && !of.scalar) sizes.insert(sizes.end(), of.inner.begin(), of.inner.end());
      const std::string module = module_name(of, part, expert);
      if (of.what == kind::plain) {
        found[module] = {module, sizes, false, {}};
        continue;
      }
      const std::int64_t cols = of.what == kind::moe ? part.cols : product(of.inner);
      const std::string scale = module + ".weight_scale_inv";
      found[module + ".weight"] = {module + ".weight", sizes, false, scale};
      found[scale] = {
          scale, {scale_rows(part.tensor_rows, part.grid_rows, of.block_rows), blocks(cols, of.block_cols)}, true, {}};
    }
  std::vector<source> all;
  for (const auto& [name, each] : found) all.push_back(each);
  return all;
}

/// A weight (or plain tensor) made of these shards, and its scale.
inline void stack(const layer& of, const std::vector<shard>& parts, runtime_tensor& weight, runtime_tensor* scale) {
  const std::vector<std::int64_t> slots = of.what == kind::moe ? of.experts_local : std::vector<std::int64_t>{0};
  for (const std::int64_t expert : slots)
    for (const shard& part : parts) {
      const auto id = static_cast<std::int32_t>(weight.sources.size());
      const std::string module = module_name(of, part, expert);
      weight.sources.push_back(of.what == kind::plain ? module : module + ".weight");
      weight.grid_rows.push_back(part.grid_rows);
      if (scale != nullptr) scale->sources.push_back(module + ".weight_scale_inv");

      std::int64_t rows = part.rows, first_row = 0;
      if (part.split == cut::column) {
        const int slices = part.parts == 0 ? of.tp_size : part.parts;
        const int ranks_per_slice = of.tp_size / slices;
        rows = part.rows / slices;
        first_row = of.tp_rank / ranks_per_slice * rows;
      }
      const dims inner = of.what == kind::moe ? dims{part.cols} : of.inner;
      std::int64_t cols = product(inner), first_col = 0;
      if (part.split == cut::row && !inner.empty()) {
        cols /= of.tp_size;
        first_col = of.tp_rank * cols;
      }
      weight.cols = cols;
      std::int64_t last_scale_row = -1;
      for (std::int64_t r = first_row; r < first_row + rows; ++r) {
        ++weight.rows;
        const bool pad = r >= part.checkpoint_rows;
        const std::int64_t row = part.tensor_row_begin + r;
        for (std::int64_t c = first_col; c < first_col + cols; ++c)
          weight.elements.push_back(pad ? origin{} : origin{id, row, c});
        if (scale == nullptr || pad) continue;
        const std::int64_t block = scale_row(row, part.grid_rows, of.block_rows);
        if (block == last_scale_row) continue;
        last_scale_row = block;
        ++scale->rows;
        scale->cols = 0;
        for (std::int64_t c = first_col; c < first_col + cols; ++c)
          if (c == first_col || c % of.block_cols == 0) {
            scale->elements.push_back({id, block, c / of.block_cols});
            ++scale->cols;
          }
      }
    }
}

/// This rank's shape of `rows` rows of a tensor of the layer that is not stacked.
inline dims local_sizes(const layer& of, std::int64_t rows) {
  dims sizes = {rows};
  for (std::size_t i = 0; i < of.inner.size(); ++i)
    sizes.push_back(i == 0 && of.shards[0].split == cut::row ? of.inner[i] / of.tp_size : of.inner[i]);
  return sizes;
}

/// The runtime tensors of a layer, in the order of its layout.
inline std::vector<runtime_tensor> runtime_of(const layer& of) {
  if (of.what == kind::plain) {
    runtime_tensor only{.name = of.name, .type = of.type};
    stack(of, of.shards, only, nullptr);
    only.sizes = local_sizes(of, only.rows);
    if (of.scalar) only.sizes = {};
    if (!of.runtime_sizes.empty()) only.sizes = of.runtime_sizes;
    return {only};
  }
  std::vector<std::vector<shard>> groups = {of.shards};
  std::vector<std::string> names = {"weight"};
  if (of.what == kind::moe) {
    groups = {{of.shards[0], of.shards[1]}, {of.shards[2]}};
    names = {"w13_weight", "w2_weight"};
  }
  std::vector<runtime_tensor> all;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    runtime_tensor weight{.name = of.name + "." + names[i], .type = dtype::bf16};
    runtime_tensor scale{.name = of.name + "." + names[i] + "_scale_inv", .type = dtype::fp32, .retired = true};
    weight.block_rows = of.block_rows;
    weight.block_cols = of.block_cols;
    stack(of, groups[i], weight, &scale);
    weight.sizes = local_sizes(of, weight.rows);
    scale.sizes = {scale.rows, scale.cols};
    if (const auto slots = static_cast<std::int64_t>(of.experts_local.size()); of.what == kind::moe && slots > 0) {
      weight.sizes = {slots, weight.rows / slots, weight.cols};
      scale.sizes = {slots, scale.rows / slots, scale.cols};
    }
    all.push_back(std::move(weight));
    all.push_back(std::move(scale));
  }
  return all;
}

inline std::uint32_t code_at(const tensor& of, std::int64_t index) {
  std::uint32_t code = 0;
  const auto bytes = static_cast<std::size_t>(wreload::bytes_of(of.type));
  std::memcpy(&code, of.bytes.data() + static_cast<std::size_t>(index) * bytes, bytes < 4 ? bytes : 4);
  return code;
}

/// `dequantise` of numerics.hpp, each result computed once.
class memo {
 public:
  std::uint32_t dequantised(dtype stored, std::uint32_t code, dtype scale_type, std::uint32_t scale, dtype runtime) {
    const std::uint64_t key = (static_cast<std::uint64_t>(scale) << 32) | (static_cast<std::uint64_t>(stored) << 24) |
                              (static_cast<std::uint64_t>(scale_type) << 16) |
                              (static_cast<std::uint64_t>(runtime) << 8);
    row& known = rows_[key];
    if (!known.done[code]) {
      known.code[code] = dequantise(stored, code, scale_type, scale, runtime);
      known.done[code] = true;
    }
    return known.code[code];
  }

 private:
  struct row {
    std::array<std::uint32_t, 256> code = {};
    std::array<bool, 256> done = {};
  };
  std::unordered_map<std::uint64_t, row> rows_ = {};
};

/// A value of `from` in the wider format `to`; bf16 -> fp32 keeps NaN payloads, any other NaN becomes `to`'s own.
inline std::uint32_t widened(dtype from, std::uint32_t code, dtype to) {
  if (from == dtype::bf16 && to == dtype::fp32) return code << 16;
  return nearest(to, value_of(from, code));
}

/// The dense bytes of a runtime tensor after a cold start from this checkpoint.
inline std::vector<std::byte> cold_bytes(const runtime_tensor& of, const checkpoint& from) {
  memo known;
  const auto element = static_cast<std::size_t>(wreload::bytes_of(of.type));
  std::vector<std::byte> bytes(of.elements.size() * element);
  std::vector<const tensor*> values, scales;
  for (const std::string& name : of.sources) {
    const auto value = from.find(name);
    const auto scale = from.find(name + "_scale_inv");
    values.push_back(value == from.end() ? nullptr : &value->second);
    scales.push_back(scale == from.end() ? nullptr : &scale->second);
  }
  for (std::size_t i = 0; i < of.elements.size(); ++i) {
    const origin& at = of.elements[i];
    if (at.source < 0) continue;
    const auto id = static_cast<std::size_t>(at.source);
    if (values[id] == nullptr) throw std::logic_error("the checkpoint lacks " + of.sources[id]);
    const tensor& value = *values[id];
    const std::int64_t width = value.sizes.size() < 2 ? 1 : product(value.sizes) / value.sizes[0];
    const std::int64_t index = at.row * width + at.col;
    if (value.type == of.type) {
      std::memcpy(bytes.data() + i * element, value.bytes.data() + static_cast<std::size_t>(index) * element, element);
      continue;
    }
    std::uint32_t code = code_at(value, index);
    if (of.block_rows > 0) {
      if (scales[id] == nullptr) throw std::logic_error("the checkpoint lacks the scale of " + of.sources[id]);
      const tensor& scale = *scales[id];
      const std::int64_t row = scale_row(at.row, of.grid_rows[id], of.block_rows);
      const std::int64_t block = row * scale.sizes[1] + at.col / of.block_cols;
      code = known.dequantised(value.type, code, scale.type, code_at(scale, block), of.type);
    } else {
      code = widened(value.type, code, of.type);
    }
    std::memcpy(bytes.data() + i * element, &code, element);
  }
  return bytes;
}

/// What a successful update leaves of the logical checkpoint: its own tensors over the older ones; a weight that came
/// in runtime dtype drops its old scale.
inline checkpoint overlay(checkpoint older, const checkpoint& update) {
  for (const auto& [name, value] : update) {
    older[name] = value;
    if (value.type == dtype::bf16 && !update.contains(name + "_scale_inv")) older.erase(name + "_scale_inv");
  }
  return older;
}

}  // namespace reference
