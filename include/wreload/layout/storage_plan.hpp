#pragma once
/// `storage_plan`: what an engine has to allocate for a layer, before there is a model.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../core/on_use.hpp"
#include "plan_layer.hpp"

namespace wreload {

/// One allocation: `bytes` is `rows * row_stride_bytes` of the dense form; a larger row stride may be registered.
struct storage_need {
  std::string name = {};
  dtype type = dtype::none;
  shape extents = {};
  std::int64_t rows = 0;
  std::int64_t row_stride_bytes = 0;
  std::int64_t bytes = 0;
  bool retired = false;
};

/// The params of a layer that have storage (not what lives in a derived one), in the layout's order, this rank's part. An error names the checkpoint module.
template <param_layout Layout>
[[nodiscard]] std::vector<storage_need> storage_plan(std::string_view layer, const extents& sizes, status* error) {
  dependent<layer_plan, Layout> plan;
  dependent<std::vector<storage_need>, Layout> needs;
  *error = plan_layer(Layout::specs, layer, sizes, plan);
  for (const planned_param& param : plan.params)
    if (param.has_storage())
      needs.push_back({param.name, param.spec.runtime, param.extents, param.rows, param.row_bytes(), param.bytes(),
                       param.spec.retired});
  return needs;
}

}  // namespace wreload
