#pragma once
/// A linear layer that stays block FP8 at run time, with its FP32 scales (Triton and CUTLASS order).

#include "../layout/param_layout.hpp"
#include "names.hpp"

namespace wreload {

///   weight            e4m3 [rows, cols]
///   weight_scale_inv  fp32 [ceil(rows / R), ceil(cols / C)]; the shards' grids one below the other
///
/// Kernels count blocks from the first row and column they hold, so every shard but the last and every rank is cut in
/// whole blocks; anything else is refused at `add`, by the module's name. BF16 weights are refused.
template <int BlockRows, int BlockCols>
struct Fp8BlockLinearOf
    : ParamLayout<Param<names::weight, StorageView<fp8_e4m3>, ScaledBy<names::weight_scale_inv>>,
                  Param<names::weight_scale_inv, BlockScale<BlockRows, BlockCols, fp32>,
                        AlsoNamed<names::weight_scale>, Accepts<bf16, fp8_ue8m0>>> {};

using Fp8BlockLinear = Fp8BlockLinearOf<128, 128>;

}  // namespace wreload
