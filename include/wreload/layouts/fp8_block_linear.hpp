#pragma once
/// A linear layer that stays block FP8 at run time, with its FP32 scales as they are (Triton, CUTLASS, DeepGEMM) or
/// MN-major.

#include "../layout/param_layout.hpp"
#include "names.hpp"

namespace wreload {

namespace detail {

template <int BlockRows, int BlockCols, class... More>
struct fp8_block_linear
    : ParamLayout<Param<names::weight, StorageView<fp8_e4m3>, ScaledBy<names::weight_scale_inv>>,
                  Param<names::weight_scale_inv, BlockScale<BlockRows, BlockCols, fp32>,
                        AlsoNamed<names::weight_scale>, Accepts<bf16, fp8_ue8m0>>,
                  More...> {};

}  // namespace detail

///   weight            e4m3 [rows, cols]
///   weight_scale_inv  fp32 [ceil(rows / R), ceil(cols / C)]; the shards' grids one below the other
///
/// Kernels count blocks from the first row and column they hold, so every shard but the last and every rank is cut in
/// whole blocks; anything else is refused at `add`, by the module's name. BF16 weights are refused.
template <int BlockRows, int BlockCols>
struct Fp8BlockLinearOf : detail::fp8_block_linear<BlockRows, BlockCols> {};

using Fp8BlockLinear = Fp8BlockLinearOf<128, 128>;

/// The same with MN-major scales, as TMA reads them.
///
///   weight_scale_inv_mn_major  fp32 [ceil(cols / C), r(ceil(rows / R), 4)]: the transpose, where the scales land; pads
///                              zero. An alias where block rows are a multiple of 4, else bound
///
/// DeepGEMM on SM90 reads scales of 1 x 128 blocks so: as [block rows, block cols] of strides (1, r(block rows, 4)).
/// Of 128 x 128 weight scales it takes contiguous ones (`Fp8BlockLinear`: nothing moves) or transposed-contiguous
/// ones, which these are where block rows are a multiple of 4.
///
/// Source: DeepGEMM `check_sf_layout`, `get_mn_major_tma_aligned_tensor`; formats.md 2.6
template <int BlockRows, int BlockCols>
struct Fp8BlockLinearMnMajorOf
    : detail::fp8_block_linear<
          BlockRows, BlockCols,
          Derived<names::weight_scale_inv_mn_major, AliasOrBind<names::weight_scale_inv>, Map<MnMajor>>> {};

using Fp8BlockLinearMnMajor = Fp8BlockLinearMnMajorOf<128, 128>;

}  // namespace wreload
