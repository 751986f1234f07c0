#pragma once
/// A linear layer that runs in BF16 and may be stored as block FP8 (DeepSeek-V3, GLM, Qwen3).

#include "../layout/param_layout.hpp"
#include "names.hpp"

namespace wreload {

/// Block FP8 of any block size over BF16.
///
///   weight            bf16 [rows, cols]     FP8 rows land in their first half and are converted at `finish`
///   weight_scale_inv  fp32 [block rows, block cols] per shard, retired; BF16 and E8M0 scales are widened exactly;
///                     Quark spells it weight_scale
template <int BlockRows, int BlockCols>
struct Fp8DequantLinearOf
    : ParamLayout<
          Param<names::weight, StorageView<fp8_e4m3, Over<bf16>>, ScaledBy<names::weight_scale_inv>>,
          Param<names::weight_scale_inv, BlockScale<BlockRows, BlockCols, fp32>, Retired,
                AlsoNamed<names::weight_scale>, Accepts<bf16, fp8_ue8m0>>> {};

/// The usual 128 x 128 blocks.
using Fp8DequantLinear = Fp8DequantLinearOf<128, 128>;

}  // namespace wreload
