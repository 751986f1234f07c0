#pragma once
/// `PerShard`: one scalar per fused module (and expert), as `weight_scale_2` and `input_scale` of NVFP4.

#include "../core/dtype.hpp"
#include <type_traits>

#include "policy.hpp"

namespace wreload {

/// Members of `PerShard` that say more about the scalars.
struct OfAllExperts {};  ///< of every expert of the model, on every rank (for a maximum over all of them)
struct ExpectEqual {};   ///< kernels use one value for all shards: where they differ the report warns, by name

/// Axis: storage. One `T` per checkpoint module, in row order, and per expert: `[modules]` or `[experts, modules]`.
/// Checkpoint tensors are scalars (`[]` or `[1]`).
///
///     using scales = PerShard<fp32, ExpectEqual>;
///     static_assert(scales::runtime == dtype::fp32 && scales::expect_equal && !scales::of_all_experts);
template <dtype_tag T, class... Members>
struct PerShard {
  using axis = wreload::axis::storage;
  static constexpr dtype stored = T::id;
  static constexpr dtype runtime = T::id;
  static constexpr bool converts = false;
  static constexpr bool is_block_scale = false;
  static constexpr int block_rows = 0;
  static constexpr int block_cols = 0;
  static constexpr bool of_all_experts = (false || ... || std::is_same_v<Members, OfAllExperts>);
  static constexpr bool expect_equal = (false || ... || std::is_same_v<Members, ExpectEqual>);

  static_assert(((std::is_same_v<Members, OfAllExperts> || std::is_same_v<Members, ExpectEqual>) && ...),
                "PerShard: unknown member; use OfAllExperts or ExpectEqual");
  static_assert(T::id == dtype::fp32, "PerShard: scalars are combined in fp32; use PerShard<fp32>");
};

}  // namespace wreload
