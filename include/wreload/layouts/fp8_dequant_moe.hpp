#pragma once
/// Stacked experts that run in BF16 and may be stored as block FP8.

#include "../layout/param_layout.hpp"
#include "names.hpp"

namespace wreload {

/// Experts `<layer>.N.{gate,up,down}_proj` stacked per slot; the extents' shards are the three modules.
///
///   w13_weight  bf16 [slots, 2 * I, H]  gate above up        w2_weight  bf16 [slots, H, I]
///   scales      fp32, retired, one grid per slot and module
template <int BlockRows, int BlockCols>
struct Fp8DequantMoeOf
    : ParamLayout<
          Param<names::w13_weight, StorageView<fp8_e4m3, Over<bf16>>, ScaledBy<names::w13_weight_scale_inv>,
                From<names::weight, names::gate_proj, names::up_proj>>,
          Param<names::w13_weight_scale_inv, BlockScale<BlockRows, BlockCols, fp32>, Retired,
                From<names::weight_scale_inv, names::gate_proj, names::up_proj>, AlsoNamed<names::weight_scale>,
                Accepts<bf16, fp8_ue8m0>>,
          Param<names::w2_weight, StorageView<fp8_e4m3, Over<bf16>>, ScaledBy<names::w2_weight_scale_inv>,
                From<names::weight, names::down_proj>>,
          Param<names::w2_weight_scale_inv, BlockScale<BlockRows, BlockCols, fp32>, Retired,
                From<names::weight_scale_inv, names::down_proj>, AlsoNamed<names::weight_scale>,
                Accepts<bf16, fp8_ue8m0>>> {};

using Fp8DequantMoe = Fp8DequantMoeOf<128, 128>;

}  // namespace wreload
