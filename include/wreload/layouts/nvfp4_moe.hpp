#pragma once
/// Stacked NVFP4 experts in the order of CUTLASS and of TensorRT-LLM.

#include "../layout/param_layout.hpp"
#include "names.hpp"

namespace wreload {

namespace detail {

using checkpoint_order = Map<PadToMultiple<1, 1>>;

template <class Of>
using max_of_all = Max<Of, Across<experts, shards>>;

/// For a module's scalars, the alpha of the first product: of all input scales, and of this module's weight_scale_2.
template <class Alpha, class Module>
using alpha_of =
    Derived<Alpha, Bind, Product<max_of_all<names::w13_input_scale>, Pick<names::w13_weight_scale_2, Module>>>;

template <class... Params>
struct param_list {};

/// What w13 is stacked from, in the order of its rows and in that of its scalars, and its alphas.
struct gated_w13 {
  template <class Leaf>
  using rows = From<Leaf, names::up_proj, names::gate_proj>;
  template <class Leaf>
  using scalars = From<Leaf, names::gate_proj, names::up_proj>;
  using alphas =
      param_list<alpha_of<names::g1_alphas, names::gate_proj>, alpha_of<names::g1_alphas_up, names::up_proj>>;
};
/// Without a gate: up_proj alone.
struct ungated_w13 {
  template <class Leaf>
  using rows = From<Leaf, names::up_proj>;
  template <class Leaf>
  using scalars = rows<Leaf>;
  using alphas = param_list<alpha_of<names::g1_alphas, names::up_proj>>;
};

/// What both back ends have; the four maps are the back end's, `More` are derived params of its own.
template <class W13, class Alphas, class W13Map, class W13ScaleMap, class W2Map, class W2ScaleMap, class... More>
struct nvfp4_moe_params;
template <class W13, class... Alphas, class W13Map, class W13ScaleMap, class W2Map, class W2ScaleMap, class... More>
struct nvfp4_moe_params<W13, param_list<Alphas...>, W13Map, W13ScaleMap, W2Map, W2ScaleMap, More...>
    : ParamLayout<
          Param<names::w13_weight, StorageView<fp4_e2m1x2>, ScaledBy<names::w13_weight_scale>, W13Map,
                typename W13::template rows<names::weight>>,
          Param<names::w13_weight_scale, BlockScale<1, 16, fp8_e4m3>,
                typename W13::template rows<names::weight_scale>>,
          Param<names::w13_weight_scale_2, PerShard<fp32>, Retired,
                typename W13::template scalars<names::weight_scale_2>>,
          Param<names::w13_input_scale, PerShard<fp32, OfAllExperts>, Kept,
                typename W13::template scalars<names::input_scale>>,
          Param<names::w2_weight, StorageView<fp4_e2m1x2>, ScaledBy<names::w2_weight_scale>, W2Map,
                From<names::weight, names::down_proj>>,
          Param<names::w2_weight_scale, BlockScale<1, 16, fp8_e4m3>, From<names::weight_scale, names::down_proj>>,
          Param<names::w2_weight_scale_2, PerShard<fp32>, Retired, From<names::weight_scale_2, names::down_proj>>,
          Param<names::w2_input_scale, PerShard<fp32, OfAllExperts>, Kept, From<names::input_scale, names::down_proj>>,
          Derived<names::w13_blockscale_swizzled, AliasOrBind<names::w13_weight_scale>, W13ScaleMap>,
          Derived<names::w2_blockscale_swizzled, AliasOrBind<names::w2_weight_scale>, W2ScaleMap>, Alphas...,
          Derived<names::g2_alphas, Bind, Product<max_of_all<names::w2_input_scale>, names::w2_weight_scale_2>>,
          Derived<names::w13_input_scale_quant, Bind, Reciprocal<max_of_all<names::w13_input_scale>>>,
          Derived<names::w2_input_scale_quant, Bind, Reciprocal<max_of_all<names::w2_input_scale>>>, More...> {};

template <class W13, class W13Map, class W13ScaleMap, class W2Map, class W2ScaleMap, class... More>
using nvfp4_moe = nvfp4_moe_params<W13, typename W13::alphas, W13Map, W13ScaleMap, W2Map, W2ScaleMap, More...>;

/// Per expert and half, as TensorRT-LLM's first product wants it.
template <class Up>
using scale_c = Derived<names::g1_scale_c, Bind, Product<names::w2_input_scale_quant, Up>>;

}  // namespace detail

/// Experts `<layer>.N.{gate,up,down}_proj` stacked per slot; extents count bytes (gate and up [I, H/2], down [H, I/2]).
///
///   w13_weight               fp4x2 [E, 2I, H/2], up above gate ("w3; w1")       w2_weight  fp4x2 [E, H, I/2]
///   *_blockscale_swizzled    e4m3, 128x4 order per expert: where the block scales land
///   g1_alphas, g1_alphas_up  fp32 [E]: max of all input scales * the gate's (the up's) weight_scale_2     g2_alphas
///   *_input_scale_quant      fp32 scalar: 1 / max over all experts of the model, here or not, and both halves
///
/// Source: SGLang ModelOpt NVFP4 FusedMoE; formats.md rows 1-7
using Nvfp4Moe = detail::nvfp4_moe<detail::gated_w13, detail::checkpoint_order, Map<Swizzle128x4>,
                                   detail::checkpoint_order, Map<Swizzle128x4>>;

/// TensorRT-LLM order: halves interleaved, rows shuffled; needs H and 2I in multiples of 128.
using Nvfp4MoeTrtllm =
    detail::nvfp4_moe<detail::gated_w13, Map<GatedInterleave, ShuffleRows<32>>,
                      Map<GatedInterleave, ShuffleRows<32>, Swizzle128x4>, Map<ShuffleRows<32>>,
                      Map<ShuffleRows<32>, Swizzle128x4>, detail::scale_c<names::g1_alphas_up>>;

/// The same without a gate: w13 is up_proj alone.
using Nvfp4MoeUngated = detail::nvfp4_moe<detail::ungated_w13, detail::checkpoint_order, Map<Swizzle128x4>,
                                          detail::checkpoint_order, Map<Swizzle128x4>>;

using Nvfp4MoeUngatedTrtllm =
    detail::nvfp4_moe<detail::ungated_w13, Map<ShuffleRows<32>>, Map<ShuffleRows<32>, Swizzle128x4>,
                      Map<ShuffleRows<32>>, Map<ShuffleRows<32>, Swizzle128x4>, detail::scale_c<names::g1_alphas>>;

}  // namespace wreload
