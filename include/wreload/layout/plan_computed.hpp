#pragma once
/// Plans the params that are computed at `finish`: which values they read, and their shapes.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "landing.hpp"
#include "shards.hpp"

namespace wreload::detail {

/// Sizes computed params and resolves their sources; `plan` holds all other params by now.
template <class Use = on_use>
class computed_planner {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;
  using layer_plan = dependent<wreload::layer_plan, Use>;
  using planned_param = dependent<wreload::planned_param, Use>;
  using extents = dependent<wreload::extents, Use>;

 public:
  computed_planner(layer_plan& plan, const extents& layer, std::span<const std::int64_t> slots)
      : plan_(plan), layer_(layer), slots_(static_cast<std::int64_t>(slots.size())) {}

  status run() {
    // By level, so that what a param reads has its size.
    const auto levels = static_cast<int>(plan_.params.size());
    for (int level = 0; level < levels; ++level)
      for (planned_param& param : plan_.params) {
        if (!param.spec.is_computed() || param.spec.level != level) continue;
        status refused = param.spec.kind == param_kind::product ? plan_product(param) : plan_launch(param);
        if (!refused.ok()) return refused;
      }
    return {};
  }

 private:
  std::int32_t index_of(std::string_view name) const {
    std::int32_t index = 0;
    while (plan_.params[static_cast<std::size_t>(index)].spec.name != name) ++index;
    return index;
  }

  /// Modules of a PerShard param, in order.
  std::int64_t modules_of(const planned_param& param) const {
    return param.extents.rank() == 0 ? 1 : param.extents[param.extents.rank() - 1];
  }
  std::int64_t module_index(const planned_param& param, std::string_view module) const {
    const auto& named = param.spec.modules;
    const auto found = std::find(named.begin(), named.end(), module);
    return found == named.end() ? -1 : found - named.begin();
  }

  status plan_product(planned_param& param) {
    bool per_slot = false;
    for (std::size_t i = 0; i < param.spec.product.count; ++i) {
      const factor_spec& spec = param.spec.product.factors[i];
      planned_factor factor{.param = index_of(spec.param), .inverted = spec.inverted};
      const planned_param& from = plan_.params[static_cast<std::size_t>(factor.param)];
      const auto bad = [&](std::string expected, std::string got) {
        return refuse(error_code::bad_layout, param.name, std::move(expected), from.name + " with " + std::move(got));
      };
      if (from.spec.kind == param_kind::product) {
        factor.stride = from.extents.rank() == 0 ? 0 : 1;
      } else {
        const std::int64_t modules = modules_of(from);
        const bool over_shards = (spec.across & shards::bit) != 0;
        const bool over_experts = (spec.across & experts::bit) != 0;
        const std::int64_t picked = spec.module.empty() ? 0 : module_index(from, spec.module);
        if (picked < 0) return bad("a module that the factor has", "no " + std::string(spec.module));
        if (!over_shards && spec.module.empty() && modules != 1)
          return bad("one value an expert: Max<..., Across<shards>> or Pick<...>", std::to_string(modules));
        if (layer_.experts && from.spec.of_all_experts && !over_experts)
          return bad("values of all experts under Max<..., Across<experts, ...>>", "one value each");
        factor.first = picked;
        const std::int64_t owners = layer_.experts ? from.rows / std::max<std::int64_t>(modules, 1) : 1;
        if (over_experts) {
          factor.count = over_shards ? owners * modules : owners;
          factor.across = over_shards ? 1 : modules;
        } else {
          factor.count = over_shards ? modules : 1;
          factor.across = 1;
          factor.stride = layer_.experts ? modules : 0;
        }
      }
      if (factor.count == 0) return bad("a value under its maximum", "no expert on this rank");
      per_slot |= factor.stride != 0;
      param.factors.push_back(factor);
    }
    param.rows = param.computed_values = per_slot ? slots_ : 1;
    param.slot_rows = param.rows;
    param.cols = 1;
    param.extents = per_slot ? shape{slots_} : shape{};
    return {};
  }

  status plan_launch(planned_param& param) {
    vector<shape> from;
    for (const std::string_view name : param.spec.launch.sources) {
      param.launch_sources.push_back(index_of(name));
      from.push_back(plan_.params[static_cast<std::size_t>(param.launch_sources.back())].extents);
    }
    param.extents = param.spec.launch.extents(from);
    if (!param.extents.valid())
      return refuse(error_code::bad_layout, param.name, "a shape that fits in memory", to_string(param.extents));
    param.rows = param.slot_rows = param.extents.rows();
    param.cols = param.extents.cols();
    return {};
  }

  layer_plan& plan_;
  const extents& layer_;
  std::int64_t slots_ = 1;
};

}  // namespace wreload::detail
