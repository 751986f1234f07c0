#pragma once
/// NVFP4 linear layers in the order of CUTLASS (also cuDNN) and of TensorRT-LLM.

#include "../layout/param_layout.hpp"
#include "names.hpp"

namespace wreload {

/// One NVFP4 linear layer; the two maps are the back end's. Shards fuse along dim 0; extents count bytes: inner is
/// {K / 2}.
///
///   weight                    fp4x2 [N, K/2], padded; kernel order
///   weight_scale_interleaved  e4m3 [r(N, 128), r(K/16, 4)], the block scales in 128x4 order: where weight_scale lands
///   input_scale               fp32 [shards], kept where senders leave it out
///   alpha, input_scale_inv    fp32 scalars: max(input_scale) * max(weight_scale_2), 1 / max(input_scale)
///
/// Source: SGLang ModelOpt NVFP4; formats.md rows 1-4 and 7
template <class WeightMap, class ScaleMap>
struct Nvfp4LinearOf
    : ParamLayout<
          Param<names::weight, StorageView<fp4_e2m1x2>, ScaledBy<names::weight_scale>, WeightMap>,
          Param<names::weight_scale, BlockScale<1, 16, fp8_e4m3>>,
          Param<names::weight_scale_2, PerShard<fp32, ExpectEqual>, Retired>,
          Param<names::input_scale, PerShard<fp32>, Kept>,
          Derived<names::weight_scale_interleaved, AliasOrBind<names::weight_scale>, ScaleMap>,
          Derived<names::alpha, Bind,
                  Product<Max<names::input_scale, Across<shards>>, Max<names::weight_scale_2, Across<shards>>>>,
          Derived<names::input_scale_inv, Bind, Reciprocal<Max<names::input_scale, Across<shards>>>>> {};

/// CUTLASS order: zero pad to 32 x 32, scales swizzled.
using Nvfp4Linear = Nvfp4LinearOf<Map<PadToMultiple<32, 32>>, Map<Swizzle128x4>>;

/// TensorRT-LLM order: pad, shuffle the padded rows, swizzle the scales.
using Nvfp4LinearTrtllm = Nvfp4LinearOf<Map<PadToMultiple<128, 64>, ShuffleRows<32>>,
                                        Map<PadToMultiple<128, 4>, ShuffleRows<32>, Swizzle128x4>>;

/// The same from compressed-tensors checkpoints: `weight_packed`, and global scales stored as reciprocals.
template <class WeightMap, class ScaleMap>
struct Nvfp4LinearCompressedOf
    : ParamLayout<
          Param<names::weight, StorageView<fp4_e2m1x2>, ScaledBy<names::weight_scale>, WeightMap,
                AlsoNamed<names::weight_packed>>,
          Param<names::weight_scale, BlockScale<1, 16, fp8_e4m3>>,
          Param<names::weight_global_scale, PerShard<fp32, ExpectEqual>, Retired>,
          Param<names::input_global_scale, PerShard<fp32>, Kept>,
          Derived<names::weight_scale_interleaved, AliasOrBind<names::weight_scale>, ScaleMap>,
          Derived<names::alpha, Bind,
                  Product<Max<Reciprocal<names::input_global_scale>, Across<shards>>,
                          Max<Reciprocal<names::weight_global_scale>, Across<shards>>>>,
          Derived<names::input_scale_inv, Bind,
                  Reciprocal<Max<Reciprocal<names::input_global_scale>, Across<shards>>>>> {};

using Nvfp4LinearCompressed = Nvfp4LinearCompressedOf<Map<PadToMultiple<32, 32>>, Map<Swizzle128x4>>;

}  // namespace wreload
