#pragma once
// Which layout a group of tensors takes.

#include <span>

#include "block_sizes.hpp"
#include "groups.hpp"
#include "options.hpp"

namespace reload {

using layout_specs = std::span<const wr::param_spec>;

// The layouts of one back end.
struct nvfp4_layouts {
  layout_specs linear = {}, experts = {}, ungated_experts = {};

  static nvfp4_layouts of(backend kernels) {
    if (kernels == backend::trtllm)
      return {wr::Nvfp4LinearTrtllm::specs, wr::Nvfp4MoeTrtllm::specs, wr::Nvfp4MoeUngatedTrtllm::specs};
    return {wr::Nvfp4Linear::specs, wr::Nvfp4Moe::specs, wr::Nvfp4MoeUngated::specs};
  }
};

// The layout that quantised weights of a group run in. Empty: there is none; modules then run as they are stored.
inline layout_specs choose_layout(const group& one, const options& asked, const block_layouts& blocks) {
  const bool kept = asked.keeps_fp8(one.leaf());
  const nvfp4_layouts nvfp4 = nvfp4_layouts::of(asked.backend);
  if (one.stacked) {
    const bool gated = one.has_expert_module("gate_proj");
    if (!kept && one.format == stored_format::nvfp4) return gated ? nvfp4.experts : nvfp4.ungated_experts;
    return !gated ? layout_specs() : kept ? blocks.kept_experts : blocks.experts;
  }
  if (!one.has_module || !one.has_param("weight")) return {};
  if (kept) return blocks.kept_linear;  // and refuses a weight that is not FP8
  if (one.format == stored_format::nvfp4) return nvfp4.linear;
  return one.format == stored_format::block_fp8 ? blocks.linear : layout_specs();
}

}  // namespace reload
