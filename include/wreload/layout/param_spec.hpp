#pragma once
/// `param_spec`: a param of a layout as the plain record that the run-time half reads.

#include <cstdint>
#include <span>
#include <string_view>

#include "../core/dtype.hpp"
#include "../policy/derived.hpp"
#include "../policy/map.hpp"

namespace wreload {

/// Where a param's values come from.
enum class param_kind : std::uint8_t {
  matrix,       ///< StorageView: rows of checkpoint modules
  block_scale,  ///< BlockScale: grids that follow the matrix they scale
  per_shard,    ///< PerShard: one scalar a module (and expert)
  mapped,       ///< derived by a map: its source lands in it
  product,      ///< derived by arithmetic
  launch,       ///< derived by the engine's launcher
};

/// A param of a layout with its types erased. All strings and spans have static storage.
struct param_spec {
  std::string_view name = {};              ///< last part of the runtime name; empty: the layer's name is the param's
  std::string_view leaf = {};              ///< last part of the checkpoint name
  std::span<const std::string_view> modules = {};    ///< `From`: checkpoint modules in row order; empty: all shards
  std::span<const std::string_view> spellings = {};  ///< `AlsoNamed`
  std::span<const std::string_view> twins = {};      ///< `SameAs`
  dtype stored = dtype::none;              ///< what a quantised checkpoint brings
  dtype runtime = dtype::none;             ///< what kernels read; none: given when the layer is added (`Plain`)
  dtype_set accepted = {};                 ///< everything that may be loaded
  int block_rows = 0;                      ///< of a block scale
  int block_cols = 0;
  std::string_view scale_name = {};        ///< `ScaledBy`; empty: not scaled
  int scaled_by = -1;                      ///< index of the scale in the layout, or -1
  param_kind kind = param_kind::matrix;
  bool is_block_scale = false;
  bool of_all_experts = false;             ///< of a PerShard: the experts of other ranks too
  bool expect_equal = false;               ///< of a PerShard: warn where shards differ
  map_spec map = {};                       ///< order and pads of the bytes; of a param derived by a map: that map
  int lives_in = -1;                       ///< index of the param derived from this one by a map: its storage
  std::string_view derived_from = {};      ///< of a param derived by a map: the source
  int level = 0;                           ///< of a computed param: after the computed ones it reads; -1: in a circle
  product_spec product = {};               ///< of a param derived by arithmetic
  launch_spec launch = {};                 ///< of a param derived by the engine's launcher
  bool retired = false;
  bool kept = false;
  bool fixed = false;

  /// Rows that arrived as `stored` are converted at `finish`.
  constexpr bool converts() const { return stored != runtime; }
  /// Has no checkpoint source and is computed at `finish`.
  constexpr bool is_computed() const { return kind == param_kind::product || kind == param_kind::launch; }
};

/// How many allocations a layout needs: a param that lives in a derived one has none.
constexpr std::size_t storage_count(std::span<const param_spec> specs) {
  std::size_t count = 0;
  for (const param_spec& spec : specs) count += spec.lives_in < 0 ? 1 : 0;
  return count;
}

}  // namespace wreload
