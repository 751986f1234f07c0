#pragma once
/// Stacked experts that stay block FP8 at run time, with their FP32 scales as they are or MN-major.

#include "../layout/param_layout.hpp"
#include "names.hpp"

namespace wreload {

namespace detail {

template <int BlockRows, int BlockCols, class... More>
struct fp8_block_moe
    : ParamLayout<
          Param<names::w13_weight, StorageView<fp8_e4m3>, ScaledBy<names::w13_weight_scale_inv>,
                From<names::weight, names::gate_proj, names::up_proj>>,
          Param<names::w13_weight_scale_inv, BlockScale<BlockRows, BlockCols, fp32>,
                From<names::weight_scale_inv, names::gate_proj, names::up_proj>, AlsoNamed<names::weight_scale>,
                Accepts<bf16, fp8_ue8m0>>,
          Param<names::w2_weight, StorageView<fp8_e4m3>, ScaledBy<names::w2_weight_scale_inv>,
                From<names::weight, names::down_proj>>,
          Param<names::w2_weight_scale_inv, BlockScale<BlockRows, BlockCols, fp32>,
                From<names::weight_scale_inv, names::down_proj>, AlsoNamed<names::weight_scale>,
                Accepts<bf16, fp8_ue8m0>>,
          More...> {};

}  // namespace detail

/// Experts `<layer>.N.{gate,up,down}_proj` stacked per slot.
///
///   w13_weight  e4m3 [slots, 2 * I, H]  gate above up ("w1; w3")      w2_weight  e4m3 [slots, H, I]
///   scales      fp32 [slots, ...], one grid per slot and module; cut in whole blocks
template <int BlockRows, int BlockCols>
struct Fp8BlockMoeOf : detail::fp8_block_moe<BlockRows, BlockCols> {};

using Fp8BlockMoe = Fp8BlockMoeOf<128, 128>;

/// The same with MN-major scales per slot; see `Fp8BlockLinearMnMajorOf`.
///
///   *_weight_scale_inv_mn_major  fp32 [slots, block cols, r(block rows, 4)]: where the scales land
template <int BlockRows, int BlockCols>
struct Fp8BlockMoeMnMajorOf
    : detail::fp8_block_moe<
          BlockRows, BlockCols,
          Derived<names::w13_weight_scale_inv_mn_major, AliasOrBind<names::w13_weight_scale_inv>, Map<MnMajor>>,
          Derived<names::w2_weight_scale_inv_mn_major, AliasOrBind<names::w2_weight_scale_inv>, Map<MnMajor>>> {};

using Fp8BlockMoeMnMajor = Fp8BlockMoeMnMajorOf<128, 128>;

}  // namespace wreload
