#pragma once
/// `describe`: a layer in words, one line per param.

#include <string>
#include <string_view>

#include "../core/on_use.hpp"
#include "plan_layer.hpp"

namespace wreload {

/// `name  dtype shape  storage  bytes  flags`, one line a param; retired params and what is converted are marked.
///
///     fused_qkv_a_proj.weight  BF16 [2112, 7168]  view F8_E4M3  30277632 bytes
///         row 0 <- q_a_proj.weight rows 0..1536, cols 0..7168
template <class Use = on_use>
std::string describe(const dependent<layer_plan, Use>& plan) {
  dependent<std::string, Use> text;
  for (const planned_param& param : plan.params) {
    if (!param.has_storage()) continue;  // its derived param says so
    text += param.name + "  " + std::string(name_of(param.spec.runtime)) + " " + to_string(param.extents);
    if (param.spec.converts()) text += "  view " + std::string(name_of(param.spec.stored));
    if (param.spec.is_block_scale)
      text += "  scale per " + std::to_string(param.spec.block_rows) + "x" + std::to_string(param.spec.block_cols);
    text += "  " + std::to_string(param.bytes()) + " bytes";
    if (!(param.spec.map == map_spec{})) text += "  " + to_string(param.spec.map);
    if (param.spec.kind == param_kind::mapped) {
      const std::string source(param.spec.derived_from);
      text += param.pad_bytes() == 0 ? "  alias of " + source : "  bind for " + source;
      text += ", saves " + std::to_string(param.bytes() - param.pad_bytes()) + " bytes";
    }
    if (param.spec.is_computed()) text += "  computed";
    if (param.spec.retired) text += "  retired";
    if (param.spec.kept) text += "  kept";
    if (param.spec.fixed) text += "  static";
    text += "\n";
    for (const planned_landing& landing : param.landings)
      text += "    row " + std::to_string(landing.local_row) + " <- " +
              plan.sources[static_cast<std::size_t>(landing.source)].name + " " + to_string(landing.needed) + "\n";
    for (const planned_pad& pad : param.pads)
      text += "    row " + std::to_string(pad.local_row) + " <- " + std::to_string(pad.rows) + " rows of zeros\n";
  }
  return text;
}

/// The same for a layer that was not added anywhere: nothing is allocated.
template <param_layout Layout>
[[nodiscard]] std::string describe(std::string_view layer, const extents& sizes, status* error) {
  layer_plan plan;
  *error = plan_layer(Layout::specs, layer, sizes, plan);
  return describe(plan);
}

}  // namespace wreload
