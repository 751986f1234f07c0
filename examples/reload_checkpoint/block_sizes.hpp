#pragma once
// The block size of FP8 scales: from FIRST's config.json, and only what is compiled in.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <wreload/source/checkpoint.hpp>

#include "options.hpp"

namespace reload {

using block_size = std::pair<int, int>;  // rows, columns

inline std::string to_string(block_size block) {
  return std::to_string(block.first) + "x" + std::to_string(block.second);
}

// The layouts of one block size: for linears and for stacked experts, run in BF16 or kept in FP8.
struct block_layouts {
  block_size block = {};
  std::span<const wr::param_spec> linear = {}, kept_linear = {}, experts = {}, kept_experts = {};
};

template <int Rows, int Cols>
block_layouts layouts_for_block() {
  return {{Rows, Cols},
          wr::Fp8DequantLinearOf<Rows, Cols>::specs,
          wr::Fp8BlockLinearOf<Rows, Cols>::specs,
          wr::Fp8DequantMoeOf<Rows, Cols>::specs,
          wr::Fp8BlockMoeOf<Rows, Cols>::specs};
}

// What is compiled in.
inline std::array<block_layouts, 4> all_block_layouts() {
  return {layouts_for_block<128, 128>(), layouts_for_block<64, 64>(), layouts_for_block<1, 128>(),
          layouts_for_block<128, 1>()};
}

// Chooses the FP8 layouts. A NEXT that says nothing agrees: the shapes of its scales are checked when they come.
inline wr::status choose_block_layouts(std::span<const wr::checkpoint> checkpoints, block_layouts& chosen) {
  constexpr const char* key = "weight_block_size in config.json";
  const block_size first = checkpoints.front().weight_block_size().value_or(block_size(128, 128));
  for (const wr::checkpoint& next : checkpoints)
    if (const std::optional<block_size> block = next.weight_block_size(); block && *block != first)
      return refuse_in(next.path(), key, to_string(first) + " as in " + checkpoints.front().path(), to_string(*block));
  std::string compiled;
  for (const block_layouts& layouts : all_block_layouts()) {
    if (layouts.block == first) {
      chosen = layouts;
      return {};
    }
    compiled += (compiled.empty() ? "" : ", ") + to_string(layouts.block);
  }
  return refuse_in(checkpoints.front().path(), key, "a size that is compiled in (" + compiled + ")", to_string(first),
                   wr::error_code::unsupported);
}

}  // namespace reload
