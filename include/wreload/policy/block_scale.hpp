#pragma once
/// `BlockScale` and `ScaledBy`: grids of scales, and which weight they belong to.

#include "../core/dtype.hpp"
#include "policy.hpp"

namespace wreload {

/// Axis: storage. One `T` per block of `Rows` x `Cols` elements of the *checkpoint* tensor that it scales.
///
///   checkpoint [ceil(N / Rows), ceil(K / Cols)] for a weight [N, K]
///   storage    the blocks that this rank's part touches, the grids of the shards one below the other
///
/// The value is the multiplier, `w = q * s`, whatever its name. A slice [a, a + n) of a checkpoint dimension has first
/// block a / b and phase a % b, so a cut inside a block is exact.
///
///     using grid = BlockScale<128, 128, fp32>;
///     static_assert(grid::block_rows == 128 && grid::runtime == dtype::fp32);
template <int Rows, int Cols, dtype_tag T>
struct BlockScale {
  using axis = wreload::axis::storage;
  static constexpr dtype stored = T::id;
  static constexpr dtype runtime = T::id;
  static constexpr bool converts = false;
  static constexpr bool is_block_scale = true;
  static constexpr int block_rows = Rows;
  static constexpr int block_cols = Cols;

  static_assert(Rows > 0 && Cols > 0, "BlockScale: block sizes are positive; give the rows and columns of one block");
  static_assert(T::id == dtype::fp32 || T::id == dtype::bf16 || T::id == dtype::fp8_ue8m0 || T::id == dtype::fp8_e4m3,
                "BlockScale: a scale is fp32, bf16, fp8_ue8m0 or fp8_e4m3; use one of them");
};

/// Axis: scale. Links a weight to the `BlockScale` param of the same layout that scales it.
///
///     Param<weight, StorageView<fp8_e4m3, Over<bf16>>, ScaledBy<weight_scale_inv>>
template <name_tag Name>
struct ScaledBy {
  using axis = wreload::axis::scale;
  using name = Name;
};

}  // namespace wreload
