#pragma once
/// `registry`: the params, sources and landings of a whole model, with addresses and a name index.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/index_list.hpp"
#include "../core/job.hpp"
#include "../core/name_index.hpp"
#include "../core/on_use.hpp"
#include "../core/prefetch.hpp"
#include "../core/status.hpp"
#include "../layout/landing.hpp"
#include "../layout/plan_layer.hpp"

namespace wreload {

/// Records refer to each other by 32-bit index.
template <class Record>
Record& at(std::vector<Record>& records, std::int32_t index) {
  return records[static_cast<std::size_t>(index)];
}
template <class Record>
const Record& at(const std::vector<Record>& records, std::int32_t index) {
  return records[static_cast<std::size_t>(index)];
}

/// Memory of one runtime tensor; `row_stride_bytes` 0 means dense rows.
struct storage {
  void* data = nullptr;
  std::int64_t row_stride_bytes = 0;

  storage() = default;
  storage(void* first, std::int64_t stride = 0) : data(first), row_stride_bytes(stride) {}  // NOLINT: a pointer will do
};

/// A registered runtime tensor.
struct param_record {
  std::byte* data = nullptr;
  std::int64_t row_stride_bytes = 0;
  std::int32_t first_landing = 0;  ///< its landings are neighbours in registry::landings
  std::int32_t landing_count = 0;
  std::int32_t layer = no_index;     ///< index into registry::layers
  map_index map = unmapped;          ///< index into registry::maps
  planned_param plan = {};

  const std::string& name() const { return plan.name; }
  std::byte* row(std::int64_t index) const { return data + index * row_stride_bytes; }
  /// First byte of the slot that has this row of the matrix form before the map.
  std::byte* slot_of(std::int64_t index) const { return row(index / plan.slot_rows * plan.slot_storage_rows); }
};

/// A layer: params and landings that are neighbours in the registry.
struct layer_record {
  std::string name = {};
  std::int32_t first_param = 0;
  std::int32_t param_count = 0;
  std::int32_t first_landing = 0;
  std::int32_t landing_count = 0;  ///< without those of second names (twins)
  std::int32_t first_computed = 0;
  std::int32_t computed_count = 0;
};

/// A checkpoint tensor of the model. Of millions of loads each reads one: small, what they read first.
struct source_record {
  dtype_set accepted = {};                ///< what all its landings accept
  std::int32_t first_name = no_index;     ///< its names are neighbours in registry::names
  index_list landings = {};               ///< empty: another rank's
  bool bundled = false;                   ///< [experts, rows, cols]: its matrix form has experts * rows rows
  shape extents = {};
  std::string_view name = {};             ///< in the registry's text
};

/// A landing with global indices.
struct landing_record {
  std::int32_t param = no_index;
  std::int32_t source = no_index;
  rect needed = {};
  std::int64_t local_row = 0;
  std::int32_t scale = no_index;   ///< landing of the scale, for a weight
  std::int32_t weight = no_index;  ///< landing of the weight, for a scale
  std::int32_t row_phase = 0;
  std::int32_t col_phase = 0;
  std::int32_t twins = no_index;   ///< landings with the same group share their bytes under several names

  /// The landing's place in the param's matrix.
  rect local() const { return {local_row, local_row + needed.rows(), 0, needed.cols()}; }
};

/// A computed param: what it reads, as global indices.
struct computed_record {
  std::int32_t param = no_index;
  std::vector<std::int32_t> sources = {};  ///< params; of a product: one per factor
};

/// A name that may be loaded: a source under one of its spellings.
struct name_record {
  std::int32_t source = no_index;
  std::int32_t spelling = 0;  ///< 0: the source's own name
};

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
  vector<landing_record> landings = {};
  vector<name_record> names = {};
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
    std::stable_sort(spellings_.begin(), spellings_.end(), [](auto& a, auto& b) { return a.first < b.first; });
    names.reserve(sources.size() + spellings_.size());
    texts_.reserve(names.capacity());
    auto other = spellings_.begin();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      sources[i].first_name = static_cast<std::int32_t>(names.size());
      if (status refused = index_name(sources[i].name, {id, 0}); !refused.ok()) return refused;
      for (std::int32_t s = 1; other != spellings_.end() && other->first == id; ++other) {
        if (is_name_of(sources[i], s, other->second)) continue;  // another layer has said it
        if (status refused = index_name(other->second, {id, s++}); !refused.ok()) return refused;
      }
    }
    source_index_.clear();
    sources.shrink_to_fit();
    landings.shrink_to_fit();
    vector<std::pair<std::int32_t, std::string_view>>().swap(spellings_);
    return check_overlaps();
  }

  /// Index into `names`, or -1.
  std::int32_t find_name(std::string_view name) const {
    return find_name(name, name_index::hash_of(name));
  }
  std::int32_t find_name(std::string_view name, std::uint32_t hash) const {
    return name_index_.find(name, hash, [this](std::int32_t id) { return text_of(id); });
  }
  /// Starts to fetch what a look-up reads: in three steps, each of which reads what the one before has fetched.
  void prefetch_slot(std::uint32_t hash) const { name_index_.prefetch(hash); }
  std::int32_t prefetch_text_of(std::uint32_t hash) const {
    const std::int32_t id = name_index_.candidate(hash);
    if (id != no_index) wreload::prefetch(&at(texts_, id));
    return id;
  }
  void prefetch_text(std::int32_t id) const {
    if (id == no_index) return;
    wreload::prefetch(text_of(id).data());
    wreload::prefetch(text_of(id).data() + text_of(id).size());
  }

  /// The name of an index into `names`.
  std::string_view text_of(std::int32_t id) const { return at(texts_, id); }

  /// Index into `params` of a runtime name, or -1.
  std::int32_t find_param(std::string_view name) const {
    return param_index_.find(name, [this](std::int32_t id) -> std::string_view { return at(params, id).name(); });
  }

  /// Index into `layers` of the one a landing belongs to.
  std::int32_t layer_of(std::int32_t landing) const { return at(params, at(landings, landing).param).layer; }

  std::string_view spelling(name_record name) const {
    return at(texts_, at(sources, name.source).first_name + name.spelling);
  }

 private:
  static dtype_set common(dtype_set a, dtype_set b) {
    dtype_set both;
    for (int code = 1; code < dtype_count; ++code)
      if (a.contains(static_cast<dtype>(code)) && b.contains(static_cast<dtype>(code)))
        both |= static_cast<dtype>(code);
    return both;
  }

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
      if (given.data == nullptr && param.bytes() > 0)
        return refuse(error_code::bad_argument, param.name, std::to_string(param.bytes()) + " bytes", "a null pointer");
      if (given.row_stride_bytes != 0 && given.row_stride_bytes < param.row_bytes())
        return refuse(error_code::bad_argument, param.name,
                      "a row stride of at least " + std::to_string(param.row_bytes()) + " bytes",
                      std::to_string(given.row_stride_bytes));
      const std::int64_t element = bytes_of(param.spec.runtime);
      if (reinterpret_cast<std::uintptr_t>(given.data) % static_cast<std::uintptr_t>(element) != 0 ||
          given.row_stride_bytes % element != 0)
        return refuse(error_code::bad_argument, param.name,
                      "an address and a row stride in multiples of " + std::to_string(element) + " bytes", "others");
      const bool must_be_dense =
          !keeps_rows(param.map) || param.spec.is_computed() || param.spec.kind == param_kind::per_shard;
      if (must_be_dense && given.row_stride_bytes != 0 && given.row_stride_bytes != param.row_bytes())
        return refuse(error_code::bad_argument, param.name, "dense rows, as its order or arithmetic needs",
                      "a row stride of " + std::to_string(given.row_stride_bytes) + " bytes");
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

  /// A copy of a text that stays where it is.
  std::string_view keep(std::string_view text) {
    static constexpr std::size_t block_bytes = 1 << 16;
    if (text_.empty() || text_.back().capacity() - text_.back().size() < text.size())
      text_.emplace_back().reserve(std::max(text.size(), block_bytes));
    vector<char>& block = text_.back();
    const std::size_t first = block.size();
    block.insert(block.end(), text.begin(), text.end());
    return {block.data() + first, text.size()};
  }

  std::int32_t add_source(planned_source&& source) {
    std::int32_t id = find_source(source.name);
    if (id == no_index) {
      id = static_cast<std::int32_t>(sources.size());
      source_index_.add(source.name, id);
      sources.push_back({.accepted = source.accepted,
                         .bundled = source.bundled,
                         .extents = source.extents,
                         .name = keep(source.name)});
    }
    source_record& record = at(sources, id);
    record.accepted = common(record.accepted, source.accepted);
    for (const std::string& other : source.spellings) spellings_.emplace_back(id, keep(other));
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

  /// Whether one of the other spellings before number `end` is this one.
  bool is_name_of(const source_record& source, std::int32_t end, std::string_view name) const {
    for (std::int32_t s = 1; s < end; ++s)
      if (at(texts_, source.first_name + s) == name) return true;
    return false;
  }

  status index_name(std::string_view name, name_record record) {
    if (find_name(name) != no_index)
      return refuse(error_code::bad_layout, name, "one tensor of that name",
                    "a second one, a spelling of " + std::string(at(sources, record.source).name));
    name_index_.add(name, static_cast<std::int32_t>(names.size()));
    names.push_back(record);
    texts_.push_back(name);
    return {};
  }

  /// Params may interleave inside common rows (same stride), but never share a byte.
  status check_overlaps() const {
    vector<const param_record*> order;
    for (const param_record& param : params)
      if (param.plan.bytes() > 0) order.push_back(&param);
    const auto address = [](const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); };
    const auto end = [](const param_record& param) {
      return param.row(param.plan.rows - 1) + param.plan.row_bytes();
    };
    std::sort(order.begin(), order.end(), [&](auto* a, auto* b) { return address(a->data) < address(b->data); });
    vector<const param_record*> open;  // params that reach beyond the current address
    for (const param_record* param : order) {
      std::erase_if(open, [&](const param_record* other) { return address(param->data) >= address(end(*other)); });
      for (const param_record* other : open) {
        const std::int64_t stride = other->row_stride_bytes;
        const std::int64_t offset = (param->data - other->data) % stride;
        const bool apart = param->row_stride_bytes == stride && offset >= other->plan.row_bytes() &&
                           offset + param->plan.row_bytes() <= stride;
        if (!apart)
          return refuse(error_code::bad_layout, param->name(), "bytes of its own (or same_as)",
                        "bytes of " + other->name());
      }
      open.push_back(param);
    }
    return {};
  }

  basic_name_index<Use> param_index_ = {};
  basic_name_index<Use> source_index_ = {};  ///< until `index`
  basic_name_index<Use> name_index_ = {};
  vector<vector<char>> text_ = {};           ///< of all names; blocks never move
  vector<std::string_view> texts_ = {};      ///< per name
  vector<std::pair<std::int32_t, std::string_view>> spellings_ = {};  ///< until `index`: source, another name
  vector<std::pair<std::string, std::string>> twins_ = {};  ///< name, second name
};

using registry = basic_registry<>;

}  // namespace wreload
