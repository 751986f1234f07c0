#pragma once
/// `registry`: the params, sources and landings of a whole model, with addresses and names.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/name_index.hpp"
#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "../layout/landing.hpp"
#include "checkpoint_names.hpp"
#include "records.hpp"
#include "storage_checks.hpp"

namespace wreload {

/// Records of a model; grows until `index()`, then is read only.
template <class Use = on_use>
class basic_registry {
  using layer_plan = dependent<wreload::layer_plan, Use>;
  using planned_source = dependent<wreload::planned_source, Use>;
  using planned_landing = dependent<wreload::planned_landing, Use>;

 public:
  template <class T>
  using vector = dependent<std::vector<T>, Use>;

  vector<layer_record> layers = {};
  vector<param_record> params = {};
  vector<source_record> sources = {};
  basic_checkpoint_names<Use> names = {};
  vector<landing_record> landings = {};
  vector<computed_record> computed = {};  ///< by level
  vector<storage_map> maps = {};
  vector<vector<std::int32_t>> twin_groups = {};  ///< landings on the same bytes, the first name's first

  basic_registry() = default;
  basic_registry(const basic_registry&) = delete;  // records point to its text
  basic_registry& operator=(const basic_registry&) = delete;

  /// Adds a planned layer; one storage per param. On a refusal nothing was added.
  status add(layer_plan&& plan, std::span<const storage> memory) {
    if (status refused = check(plan, memory); !refused.ok()) return refused;
    vector<std::int32_t> source_ids, param_ids;
    for (planned_source& source : plan.sources) source_ids.push_back(add_source(std::move(source)));
    auto next = memory.begin();
    layer_record layer{.name = plan.name,
                       .first_param = static_cast<std::int32_t>(params.size()),
                       .first_landing = static_cast<std::int32_t>(landings.size()),
                       .first_computed = static_cast<std::int32_t>(computed.size())};
    for (planned_param& param : plan.params) {
      param_ids.push_back(param.has_storage() ? static_cast<std::int32_t>(params.size()) : no_index);
      if (!param.has_storage()) continue;
      const std::int64_t stride = next->row_stride_bytes == 0 ? param.row_bytes() : next->row_stride_bytes;
      param_record record{.data = static_cast<std::byte*>(next->data),
                          .row_stride_bytes = stride,
                          .first_landing = static_cast<std::int32_t>(landings.size()),
                          .landing_count = static_cast<std::int32_t>(param.landings.size()),
                          .layer = static_cast<std::int32_t>(layers.size()),
                          .map = add_map(param.map)};
      ++next;
      for (const planned_landing& part : param.landings) {
        const std::int32_t source = at(source_ids, part.source);
        at(sources, source).landings.push_back(static_cast<std::int32_t>(landings.size()));
        landings.push_back({.param = param_ids.back(),
                            .source = source,
                            .needed = part.needed,
                            .local_row = part.local_row,
                            .scale = part.scale,
                            .row_phase = part.row_phase,
                            .col_phase = part.col_phase});
      }
      param_index_.add(param.name, param_ids.back());
      vector<planned_landing>().swap(param.landings);  // they are records now
      record.plan = std::move(param);
      params.push_back(std::move(record));
    }
    link_scales(plan, param_ids);
    add_computed(param_ids);
    layer.param_count = static_cast<std::int32_t>(params.size()) - layer.first_param;
    layer.landing_count = static_cast<std::int32_t>(landings.size()) - layer.first_landing;
    layer.computed_count = static_cast<std::int32_t>(computed.size()) - layer.first_computed;
    layers.push_back(std::move(layer));
    return {};
  }

  /// Declares a second name for the bytes of a source; takes effect at `index()`.
  void add_twin(std::string_view name, std::string_view second) { twins_.emplace_back(name, second); }

  /// Builds the name index; refuses spellings that collide and params that share bytes.
  status index() {
    if (status refused = land_twins(); !refused.ok()) return refused;
    for (const source_record& source : sources)
      if (source.accepted == dtype_set{})
        return refuse(error_code::bad_layout, source.name, "a dtype that every param it lands in accepts", "none");
    if (status refused = names.index(sources); !refused.ok()) return refused;
    source_index_.clear();
    sources.shrink_to_fit();
    landings.shrink_to_fit();
    return detail::check_overlaps<Use>(params);
  }

  /// Index into `params` of a runtime name, or -1.
  std::int32_t find_param(std::string_view name) const {
    return param_index_.find(name, [this](std::int32_t id) -> std::string_view { return at(params, id).name(); });
  }

  /// Index into `layers` of the one a landing belongs to.
  std::int32_t layer_of(std::int32_t landing) const { return at(params, at(landings, landing).param).layer; }

  /// Whether a landing is the first of those that share its bytes; one without a second name is.
  bool is_first_twin(std::int32_t landing) const {
    const std::int32_t twins = at(landings, landing).twins;
    return twins == no_index || at(twin_groups, twins).front() == landing;
  }
  /// Calls `visit(landing)` for the landing and for those that share its bytes.
  template <class Visit>
  void for_each_twin(std::int32_t landing, Visit&& visit) const {
    const std::int32_t twins = at(landings, landing).twins;
    if (twins == no_index) return visit(landing);
    for (const std::int32_t twin : at(twin_groups, twins)) visit(twin);
  }

  /// The checkpoint name of a landing.
  std::string_view source_of(std::int32_t landing) const { return at(sources, at(landings, landing).source).name; }

  /// The text of a name.
  std::string_view spelling(name_record name) const {
    return names.text_of(at(sources, name.source).first_name + name.spelling);
  }

 private:
  std::int32_t find_source(std::string_view name) const {
    return source_index_.find(name, [this](std::int32_t id) -> std::string_view { return at(sources, id).name; });
  }

  map_index add_map(const storage_map& map) {
    if (is_identity(map)) return unmapped;
    std::size_t index = 0;
    while (index < maps.size() && !(maps[index] == map)) ++index;
    if (index == maps.size()) maps.push_back(map);
    return static_cast<map_index>(index);
  }

  /// From the layer's indices to the registry's, for the params just added.
  void link_scales(const layer_plan& plan, const vector<std::int32_t>& param_ids) {
    for (const std::int32_t id : param_ids) {
      if (id == no_index || at(params, id).plan.spec.scaled_by < 0) continue;
      std::int32_t scale = at(params, id).plan.spec.scaled_by;
      if (at(param_ids, scale) == no_index) scale = at(plan.params, scale).spec.lives_in;
      const std::int32_t first = at(params, at(param_ids, scale)).first_landing;
      for (std::int32_t i = 0; i < at(params, id).landing_count; ++i) {
        const std::int32_t weight = at(params, id).first_landing + i;
        at(landings, weight).scale += first;
        at(landings, at(landings, weight).scale).weight = weight;
      }
    }
  }

  void add_computed(const vector<std::int32_t>& param_ids) {
    const auto first = static_cast<std::ptrdiff_t>(computed.size());
    for (const std::int32_t id : param_ids) {
      if (id == no_index || !at(params, id).plan.spec.is_computed()) continue;
      computed_record record{.param = id};
      for (const planned_factor& factor : at(params, id).plan.factors)
        record.sources.push_back(at(param_ids, factor.param));
      for (const std::int32_t source : at(params, id).plan.launch_sources)
        record.sources.push_back(at(param_ids, source));
      computed.push_back(std::move(record));
    }
    std::stable_sort(computed.begin() + first, computed.end(), [this](const auto& a, const auto& b) {
      return at(params, a.param).plan.spec.level < at(params, b.param).plan.spec.level;
    });
  }

  status check(const layer_plan& plan, std::span<const storage> memory) const {
    std::size_t needed = 0;
    for (const planned_param& param : plan.params) needed += param.has_storage() ? 1 : 0;
    if (memory.size() != needed)
      return refuse(error_code::bad_argument, plan.name, std::to_string(needed) + " storages",
                    std::to_string(memory.size()));
    auto next = memory.begin();
    for (const planned_param& param : plan.params) {
      if (!param.has_storage()) continue;
      const storage given = *next++;
      if (find_param(param.name) != no_index)
        return refuse(error_code::bad_layout, param.name, "a name of its own", "a second param of that name");
      if (status refused = detail::check_storage(param, given); !refused.ok()) return refused;
    }
    for (const planned_source& source : plan.sources) {
      const std::int32_t id = find_source(source.name);
      if (id == no_index) continue;
      const shape& known = at(sources, id).extents;
      if (at(sources, id).bundled != source.bundled)
        return refuse(error_code::bad_layout, source.name, "a bundle of experts in every layer or in none", "both");
      if (!(known == source.extents))
        return refuse(error_code::bad_layout, source.name, to_string(known) + " as another layer reads it",
                      to_string(source.extents));
    }
    return {};
  }

  std::int32_t add_source(planned_source&& source) {
    std::int32_t id = find_source(source.name);
    if (id == no_index) {
      id = static_cast<std::int32_t>(sources.size());
      source_index_.add(source.name, id);
      sources.push_back({.accepted = source.accepted,
                         .bundled = source.bundled,
                         .extents = source.extents,
                         .name = names.keep(source.name)});
    }
    source_record& record = at(sources, id);
    record.accepted = record.accepted & source.accepted;
    for (const std::string& other : source.spellings) names.add_spelling(id, other);
    for (std::string& twin : source.twins) {
      std::pair<std::string, std::string> pair{std::string(record.name), std::move(twin)};
      if (std::find(twins_.begin(), twins_.end(), pair) == twins_.end()) twins_.push_back(std::move(pair));
    }
    return id;
  }

  /// In any order of declaration: a second name may have a second name of its own.
  status land_twins() {
    vector<std::pair<std::string, std::string>> open = twins_;
    while (!open.empty()) {
      const std::size_t before = open.size();
      for (std::size_t i = open.size(); i-- > 0;) {
        if (find_source(open[i].first) == no_index) continue;
        if (status refused = land_twin(open[i].first, open[i].second); !refused.ok()) return refused;
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (open.size() == before)
        return refuse(error_code::unknown_name, open[0].first, "a checkpoint tensor of the model", "none of that name");
    }
    return {};
  }

  /// Gives a second name landings of its own on the bytes of the first.
  status land_twin(const std::string& name, const std::string& second) {
    const std::int32_t first = find_source(name);
    if (find_source(second) != no_index)
      return refuse(error_code::bad_layout, second, "a name that has no storage of its own", "a tensor of the model");
    const source_record& known = at(sources, first);
    const std::int32_t id = add_source(
        {.name = second, .extents = known.extents, .bundled = known.bundled, .accepted = known.accepted});
    source_record& twin = at(sources, id);
    for (const std::int32_t l : at(sources, first).landings) {
      if (at(landings, l).twins == no_index) {
        at(landings, l).twins = static_cast<std::int32_t>(twin_groups.size());
        twin_groups.push_back({l});
      }
      const auto copy = static_cast<std::int32_t>(landings.size());
      at(twin_groups, at(landings, l).twins).push_back(copy);
      twin.landings.push_back(copy);
      landings.push_back(at(landings, l));
      landings.back().source = id;
    }
    return {};
  }

  basic_name_index<Use> param_index_ = {};
  basic_name_index<Use> source_index_ = {};  ///< until `index`
  vector<std::pair<std::string, std::string>> twins_ = {};  ///< name, second name
};

using registry = basic_registry<>;

}  // namespace wreload
