#pragma once
/// `plan_layer`: turns a layout and a layer's extents into params, sources and landings. Nothing here knows an address.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/name_index.hpp"
#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "../numerics/widen.hpp"
#include "landing.hpp"
#include "plan_computed.hpp"
#include "param_layout.hpp"
#include "shards.hpp"

namespace wreload {

namespace detail {

/// Builds one `layer_plan`; a class only to share the inputs between its steps.
template <class Use = on_use>
class layer_planner {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;
  using layer_plan = dependent<wreload::layer_plan, Use>;
  using planned_param = dependent<wreload::planned_param, Use>;
  using planned_source = dependent<wreload::planned_source, Use>;
  using extents = dependent<wreload::extents, Use>;

 public:
  layer_planner(std::span<const param_spec> specs, std::string_view name, const extents& layer)
      : specs_(specs), layer_(layer) {
    plan_.name = name;
  }

  status run(layer_plan& out) {
    if (layer_.shards.empty()) return bad(plan_.name, "at least one shard", "none");
    for (const param_spec& spec : specs_) {
      planned_param param{.name = plan_.name, .spec = spec};
      if (!spec.name.empty()) (param.name += '.') += spec.name;
      if (status refused = fill_in_dtype(param); !refused.ok()) return refused;
      plan_.params.push_back(std::move(param));
    }
    if (status refused = slots_of_layer(slots_); !refused.ok()) return refused;
    for (planned_param& param : plan_.params) {
      status refused;
      if (param.spec.kind == param_kind::matrix) refused = plan_matrix(param);
      if (param.spec.kind == param_kind::per_shard) refused = plan_scalars(param);
      if (!refused.ok()) return with_layer(std::move(refused));
    }
    for (planned_param& param : plan_.params)
      if (param.spec.kind == param_kind::mapped) take_over(param);
    for (planned_param& param : plan_.params)
      if (param.has_storage())
        if (status refused = apply_map(param); !refused.ok()) return refused;
    if (status refused = computed_planner<Use>(plan_, layer_, slots_).run(); !refused.ok()) return refused;
    out = std::move(plan_);
    return {};
  }

 private:
  static status bad(std::string_view name, std::string expected, std::string got) {
    return refuse(error_code::bad_layout, name, std::move(expected), std::move(got));
  }

  /// In a stacked layer a module's name alone (`gate_proj`) does not say where it is.
  status with_layer(status refused) const {
    for (const shard& part : layer_.shards)
      if (layer_.experts && refused.param == part.module) refused.param = plan_.name + ".N." + part.module;
    return refused;
  }

  /// A param without a dtype of its own takes the extents'.
  status fill_in_dtype(planned_param& param) const {
    if (param.spec.runtime != dtype::none) return {};
    if (layer_.type == dtype::none) return bad(param.name, "a dtype in the extents", "none");
    param.spec.stored = param.spec.runtime = layer_.type;
    param.spec.accepted = dtype_set(layer_.type) | layer_.accepts;
    for (int code = 1; code < dtype_count; ++code) {
      const auto type = static_cast<dtype>(code);
      if (layer_.accepts.contains(type) && !widens(type, layer_.type))
        return bad(param.name, "accepted dtypes that widen exactly to " + std::string(name_of(layer_.type)),
                   std::string(name_of(type)));
    }
    return {};
  }

  /// The shards that a param is stacked from, in its row order.
  status shards_of(const planned_param& param, vector<const shard*>& parts) const {
    if (param.spec.modules.empty())
      for (const shard& part : layer_.shards) parts.push_back(&part);
    for (const std::string_view module : param.spec.modules) {
      const auto is_module = [module](const shard& part) { return part.module == module; };
      const auto found = std::find_if(layer_.shards.begin(), layer_.shards.end(), is_module);
      if (found == layer_.shards.end()) return bad(param.name, "a shard for module " + std::string(module), "none");
      parts.push_back(&*found);
    }
    return {};
  }

  /// The same with this rank's part of each.
  status slices_of(const planned_param& param, vector<const shard*>& parts, vector<shard_slice>& slices) const {
    if (status refused = shards_of(param, parts); !refused.ok()) return refused;
    for (const shard* part : parts) {
      shard_slice slice;
      if (status refused = slice_shard(*part, layer_, slice); !refused.ok()) return refused;
      if (!part->bundle.empty())
        if (const shape all{layer_.experts->total, weight_shape(slice).rows(), weight_shape(slice).cols()};
            slice.tensor_inner.rank() != 1 || !all.valid())
          return bad(part->module, "a bundle of matrices that fits in memory", to_string(all));
      if (!slices.empty() && !(slice.local_inner == slices[0].local_inner))
        return bad(part->module, "columns " + to_string(slices[0].local_inner) + " as in " + parts[0]->module,
                   to_string(slice.local_inner));
      for (std::size_t i = 0; i < slices.size(); ++i)  // two parts of one tensor
        if (source_module(*parts[i]) == source_module(*part) &&
            (slices[i].tensor_rows != slice.tensor_rows || !(slices[i].tensor_inner == slice.tensor_inner) ||
             grid_rows_of(*parts[i], slices[i]) != grid_rows_of(*part, slice)))
          return bad(part->module, "one shape and one grid_rows in all shards of this tensor",
                     to_string(weight_shape(slices[i])) + " and " + to_string(weight_shape(slice)) + ", grids of " +
                         std::to_string(grid_rows_of(*parts[i], slices[i])) + " and " +
                         std::to_string(grid_rows_of(*part, slice)) + " rows");
      slices.push_back(slice);
    }
    return {};
  }

  /// The global expert of each slot; one slot of no expert where the layer is not stacked.
  status slots_of_layer(vector<std::int64_t>& slots) const {
    slots = layer_.experts ? layer_.experts->local : vector<std::int64_t>{not_stacked};
    const bool has_shared = layer_.experts && !layer_.experts->shared.empty();
    if (layer_.experts && layer_.experts->total < 0)
      return bad(plan_.name, "0 or more experts", std::to_string(layer_.experts->total));
    if (layer_.experts)
      for (const std::int64_t expert : slots)
        if (expert < 0 || expert >= layer_.experts->total)
          return bad(plan_.name, "experts below " + std::to_string(layer_.experts->total), std::to_string(expert));
    if (has_shared) slots.push_back(shared_slot);
    for (const shard& part : layer_.shards)
      if (!part.bundle.empty() && (!layer_.experts || has_shared))
        return bad(part.module, "a bundle in a stacked layer without a shared slot", part.bundle);
    return {};
  }

  status plan_matrix(planned_param& param) {
    vector<const shard*> parts;
    vector<shard_slice> slices;
    if (status refused = slices_of(param, parts, slices); !refused.ok()) return refused;
    std::int64_t rows_per_slot = 0;
    for (const shard_slice& slice : slices)
      if (__builtin_add_overflow(rows_per_slot, slice.local_rows, &rows_per_slot))
        return bad(param.name, "rows that fit in memory", "more than 2^63");
    const shape& inner = slices[0].local_inner;
    if (status refused = size_param(param, slot_count(), rows_per_slot, inner); !refused.ok())
      return refused;
    if (param.spec.fixed) return {};

    planned_param* scale =
        param.spec.scaled_by < 0 ? nullptr : &plan_.params[static_cast<std::size_t>(param.spec.scaled_by)];
    std::int64_t row = 0;
    for (const std::int64_t expert : slots_)
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const bool is_last = i + 1 == parts.size();
        if (status refused = land_slice(param, scale, *parts[i], slices[i], expert, row, is_last); !refused.ok())
          return refused;
        row += slices[i].local_rows;
      }
    if (layer_.experts) know_absent_experts(param, scale, parts, slices);
    if (scale != nullptr)
      scale->extents = layer_.experts ? shape{slot_count(), scale->rows / std::max<std::int64_t>(slot_count(), 1), scale->cols}
                                      : shape{scale->rows, scale->cols};
    return {};
  }

  std::int64_t slot_count() const { return static_cast<std::int64_t>(slots_.size()); }

  /// One scalar per module, and per expert of this rank or of the model.
  status plan_scalars(planned_param& param) {
    vector<const shard*> parts;
    if (status refused = shards_of(param, parts); !refused.ok()) return refused;
    for (const shard* part : parts)
      if (!part->bundle.empty())
        return bad(part->module, "a scalar tensor an expert (" + param.name + ")", "the bundle " + part->bundle);
    vector<std::int64_t> owners = slots_;
    if (layer_.experts && param.spec.of_all_experts) {
      owners = expert_slots::all(layer_.experts->total).local;
      if (!layer_.experts->shared.empty()) owners.push_back(shared_slot);
    }
    for (const std::int64_t expert : owners)
      for (const shard* part : parts) {
        param.landings.push_back({.source = add_source(param.spec, *part, expert, {}),
                                  .needed = {0, 1, 0, 1},
                                  .local_row = param.rows++});
      }
    const auto modules = static_cast<std::int64_t>(parts.size());
    param.cols = 1;
    param.extents = layer_.experts ? shape{static_cast<std::int64_t>(owners.size()), modules} : shape{modules};
    if (layer_.experts)
      for (const std::int64_t expert : absent_experts())
        for (const shard* part : parts) add_source(param.spec, *part, expert, {});
    return {};
  }

  /// A param derived by a map becomes its source in kernel order: same bytes, same landings, its own name.
  void take_over(planned_param& derived) {
    const auto is_source = [&](const planned_param& each) { return each.spec.name == derived.spec.derived_from; };
    planned_param& source = *std::find_if(plan_.params.begin(), plan_.params.end(), is_source);
    planned_param moved = source;
    moved.name = derived.name;
    moved.spec.name = derived.spec.name;
    moved.spec.kind = param_kind::mapped;
    moved.spec.map = derived.spec.map;
    moved.spec.derived_from = derived.spec.derived_from;
    moved.spec.lives_in = no_index;
    source.landings.clear();
    derived = std::move(moved);
  }

  /// Puts a param's pads and order in force: rows so far are dense, in checkpoint order, slot after slot.
  status apply_map(planned_param& param) {
    const bool stacked = layer_.experts && param.spec.kind != param_kind::per_shard;
    const std::int64_t slots = stacked ? slot_count() : 1;
    const std::int64_t rows = slots == 0 ? 0 : param.rows / slots;
    param.slot_rows = param.slot_storage_rows = rows;
    if (param.spec.map == map_spec{}) {
      for (planned_pad& pad : param.pads) pad.cols = param.cols;
      return {};
    }
    if (const map_need need = param.spec.map.unmet(rows, param.spec.runtime); !need.ok())
      return bad(param.name, std::string(need.expected), need.got());
    const resolved_map made = param.spec.map.resolve(rows, param.cols, param.spec.runtime);
    shape padded{slots, made.padded_rows, made.padded_cols};
    if (!padded.valid()) return bad(param.name, "a shape that fits in memory", to_string(padded));
    const std::int64_t half = made.half_rows > 0 ? rows / 2 : rows;  // rows of a piece that is padded by itself
    const std::int64_t shift = made.half_rows > 0 ? made.half_rows - half : 0;
    const auto moved = [&](std::int64_t row) {
      return row / rows * made.padded_rows + row % rows + (row % rows >= half ? shift : 0);
    };
    for (planned_landing& landing : param.landings) {
      const std::int64_t last = landing.local_row + landing.needed.rows() - 1;
      const bool in_two_halves = made.half_rows > 0 && (landing.local_row % rows < half) != (last % rows < half);
      if (in_two_halves && shift != 0)
        return bad(plan_.sources[static_cast<std::size_t>(landing.source)].name, "one half of a gated weight a tensor",
                   "rows of both, and a pad between them");
      if (in_two_halves && landing.needed.rows() != rows)
        return bad(plan_.sources[static_cast<std::size_t>(landing.source)].name,
                   "two halves of " + std::to_string(half) + " rows", "a tensor with rows of both");
      landing.local_row = moved(landing.local_row);
    }
    for (planned_pad& pad : param.pads) pad = {moved(pad.local_row), pad.rows, 0, param.cols};
    const std::int64_t pieces = made.half_rows > 0 ? 2 : 1;
    const std::int64_t piece_rows = made.half_rows > 0 ? made.half_rows : made.padded_rows;
    for (std::int64_t slot = 0; slot < slots; ++slot)
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        const std::int64_t first = slot * made.padded_rows + piece * piece_rows;
        const std::int64_t end = piece + 1 < pieces ? first + piece_rows : (slot + 1) * made.padded_rows;
        if (made.padded_cols > param.cols && half > 0)
          param.pads.push_back({first, half, param.cols, made.padded_cols - param.cols});
        if (first + half < end) param.pads.push_back({first + half, end - first - half, 0, made.padded_cols});
      }
    param.rows = slots * made.storage_rows();
    param.cols = made.storage_cols();
    param.slot_rows = made.padded_rows;
    param.slot_storage_rows = made.storage_rows();
    param.map = made.map;
    param.extents = shape{made.storage_rows(), made.storage_cols()};
    if (stacked) param.extents = {slots, made.storage_rows(), made.storage_cols()};
    return {};
  }

  status size_param(planned_param& param, std::int64_t slots, std::int64_t rows, const shape& inner) const {
    shape local = layer_.experts ? shape{slots, rows} : shape{rows};
    if (local.rank() + inner.rank() > max_rank)
      return bad(param.name, "at most " + std::to_string(max_rank) + " dims",
                 std::to_string(local.rank() + inner.rank()));
    for (const std::int64_t dim : inner.dims()) local.push_back(dim);
    if (!local.valid()) return bad(param.name, "a shape that fits in memory", to_string(local));
    param.rows = slots * rows;
    param.cols = 1;
    for (const std::int64_t dim : inner.dims()) param.cols *= dim;
    if (layer_.runtime_shape &&
        (!layer_.runtime_shape->valid() || layer_.runtime_shape->elements() != local.elements()))
      return bad(param.name, std::to_string(local.elements()) + " elements in the runtime shape",
                 to_string(*layer_.runtime_shape));
    if (layer_.scalar && param.rows == 1) local = {};
    param.extents = layer_.runtime_shape.value_or(local);
    return {};
  }

  static const std::string& source_module(const shard& part) { return part.bundle.empty() ? part.module : part.bundle; }

  /// Rows of a bundle's matrix form in front of an expert; `rows` of each.
  static std::int64_t rows_before(const shard& part, std::int64_t expert, std::int64_t rows) {
    return part.bundle.empty() ? 0 : expert * rows;
  }

  std::string source_name(const shard& part, std::int64_t expert, std::string_view leaf) const {
    std::string name = source_module(part);
    if (expert == shared_slot) name = layer_.experts->shared + "." + name;
    else if (!part.bundle.empty()) name = plan_.name + "." + name;
    else if (expert != not_stacked) name = plan_.name + "." + std::to_string(expert) + "." + name;
    if (!leaf.empty()) (name += '.') += leaf;
    return name;
  }

  std::int32_t add_source(const param_spec& spec, const shard& part, std::int64_t expert, const shape& whole) {
    planned_source source{.name = source_name(part, expert, spec.leaf),
                          .extents = whole,
                          .bundled = !part.bundle.empty(),
                          .accepted = spec.accepted};
    if (source.bundled) source.extents = {layer_.experts->total, whole.rows(), whole.cols()};
    const auto name_of = [this](std::int32_t id) -> std::string_view {
      return plan_.sources[static_cast<std::size_t>(id)].name;
    };
    if (const std::int32_t known = source_index_.find(source.name, name_of); known != name_index::none) return known;
    const auto next = static_cast<std::int32_t>(plan_.sources.size());
    source_index_.add(source.name, next);
    for (const std::string_view other : spec.spellings) source.spellings.push_back(source_name(part, expert, other));
    for (const std::string_view other : spec.twins) source.twins.push_back(source_name(part, expert, other));
    plan_.sources.push_back(std::move(source));
    return next;
  }

  shape weight_shape(const shard_slice& slice) const {
    if (layer_.scalar) return {};
    shape whole{slice.tensor_rows};
    for (const std::int64_t dim : slice.tensor_inner.dims()) whole.push_back(dim);
    return whole;
  }

  static std::int64_t grid_rows_of(const shard& part, const shard_slice& slice) {
    const std::int64_t whole = std::max<std::int64_t>(slice.tensor_rows, 1);
    return part.grid_rows > 0 ? std::min(part.grid_rows, whole) : whole;
  }

  static shape scale_shape(const param_spec& scale, std::int64_t block_cols, const shard& part,
                           const shard_slice& slice) {
    const std::int64_t grid_rows = grid_rows_of(part, slice);
    const std::int64_t block_rows = slice.tensor_rows / grid_rows * ceil_div(grid_rows, scale.block_rows) +
                                    ceil_div(slice.tensor_rows % grid_rows, scale.block_rows);
    std::int64_t cols = 1;
    for (const std::int64_t dim : slice.tensor_inner.dims()) cols *= dim;
    return {block_rows, ceil_div(cols, block_cols)};
  }

  /// Lands one shard's slice at a storage row; cut where the checkpoint's scale grids are cut.
  status land_slice(planned_param& param, planned_param* scale, const shard& part, const shard_slice& slice,
                    std::int64_t expert, std::int64_t row, bool is_last) {
    const std::int32_t source = add_source(param.spec, part, expert, weight_shape(slice));
    if (scale != nullptr)  // known by name, though this rank may hold nothing but pads
      add_source(scale->spec, part, expert, scale_shape(scale->spec, block_cols_of(*scale, param), part, slice));
    const std::int64_t needed_rows = slice.needed.empty() ? 0 : slice.needed.rows();
    if (needed_rows < slice.local_rows) param.pads.push_back({row + needed_rows, slice.local_rows - needed_rows});
    const std::int64_t grid_rows = grid_rows_of(part, slice);
    const std::int64_t first_scale_row = scale == nullptr ? 0 : scale->rows;
    for (std::int64_t begin = slice.needed.row_begin; begin < slice.needed.row_begin + needed_rows;) {
      const std::int64_t end = std::min(slice.needed.row_end, (begin / grid_rows + 1) * grid_rows);
      planned_landing landing{.source = source,
                              .needed = {begin, end, slice.needed.col_begin, slice.needed.col_end},
                              .local_row = row + begin - slice.needed.row_begin};
      if (scale != nullptr) {
        land_scale(*scale, param, landing, part, slice, expert);
        if (!param.spec.converts())
          if (status refused = check_whole_blocks(*scale, param, landing, part, slice, is_last); !refused.ok())
            return refused;
      }
      landing.needed.row_begin += rows_before(part, expert, slice.tensor_rows);
      landing.needed.row_end += rows_before(part, expert, slice.tensor_rows);
      param.landings.push_back(landing);
      begin = end;
    }
    if (scale != nullptr && !param.spec.converts()) pad_scale(*scale, param, slice, first_scale_row);
    return {};
  }

  /// Kernels find the scales of a row by its place in storage, pads included.
  static void pad_scale(planned_param& scale, const planned_param& weight, const shard_slice& slice, std::int64_t first) {
    const std::int64_t end = first + ceil_div(slice.local_rows, scale.spec.block_rows);
    if (end == scale.rows) return;
    const std::int64_t block_cols = block_cols_of(scale, weight);
    scale.cols = std::max(scale.cols, ceil_div(slice.needed.col_end, block_cols) - slice.needed.col_begin / block_cols);
    scale.pads.push_back({scale.rows, end - scale.rows});
    scale.rows = end;
  }

  /// Columns of one scale block in elements of the weight's storage (a packed fp4 pair is one).
  static std::int64_t block_cols_of(const planned_param& scale, const planned_param& weight) {
    return scale.spec.block_cols / (weight.spec.stored == dtype::fp4_e2m1x2 ? 2 : 1);
  }

  /// Lands the scale blocks that one landing of a weight touches, below those that the scale param has already.
  void land_scale(planned_param& scale, const planned_param& param, planned_landing& weight, const shard& part,
                  const shard_slice& slice, std::int64_t expert) {
    const std::int64_t block_rows = scale.spec.block_rows;
    const std::int64_t block_cols = block_cols_of(scale, param);
    const std::int64_t grid_rows = grid_rows_of(part, slice);
    const std::int64_t grid = weight.needed.row_begin / grid_rows;
    const std::int64_t first_row = weight.needed.row_begin - grid * grid_rows;
    const std::int64_t grid_block = grid * ceil_div(grid_rows, block_rows);
    const rect blocks{grid_block + first_row / block_rows,
                      grid_block + ceil_div(first_row + weight.needed.rows(), block_rows),
                      weight.needed.col_begin / block_cols, ceil_div(weight.needed.col_end, block_cols)};
    weight.scale = static_cast<std::int32_t>(scale.landings.size());
    weight.row_phase = static_cast<std::int32_t>(first_row % block_rows);
    weight.col_phase = static_cast<std::int32_t>(weight.needed.col_begin % block_cols);
    const shape whole = scale_shape(scale.spec, block_cols, part, slice);
    const std::int64_t before = rows_before(part, expert, whole.rows());
    scale.landings.push_back(
        {.source = add_source(scale.spec, part, expert, whole),
         .needed = {before + blocks.row_begin, before + blocks.row_end, blocks.col_begin, blocks.col_end},
         .local_row = scale.rows});
    scale.rows += blocks.rows();
    scale.cols = std::max(scale.cols, blocks.cols());
  }

  /// Kernels that read the scales count blocks from the first row and column they hold: a cut inside a block would give
  /// its rows another block's scale. Only the last shard's last block, and the tensor's last columns, may be short.
  static status check_whole_blocks(const planned_param& scale, const planned_param& weight,
                                   const planned_landing& landing, const shard& part, const shard_slice& slice,
                                   bool is_last) {
    const std::int64_t rows = scale.spec.block_rows;
    const std::int64_t cols = block_cols_of(scale, weight);
    const auto block = std::to_string(rows) + "x" + std::to_string(scale.spec.block_cols);
    const bool ends = landing.needed.row_end == slice.tensor_rows && is_last;
    const bool whole_rows = landing.row_phase == 0 && (landing.needed.rows() % rows == 0 || ends);
    if (!whole_rows)
      return bad(part.module, "whole " + block + " scale blocks a rank and shard", to_string(landing.needed));
    std::int64_t width = 1;
    for (const std::int64_t dim : slice.tensor_inner.dims()) width *= dim;
    const bool packed = weight.spec.stored == dtype::fp4_e2m1x2;
    if (packed && width % cols != 0)
      return bad(part.module, "columns in multiples of " + std::to_string(scale.spec.block_cols) + " values",
                 std::to_string(2 * width));
    if (landing.col_phase != 0 || (landing.needed.col_end % cols != 0 && landing.needed.col_end != width))
      return bad(part.module, "whole " + block + " scale blocks a rank", to_string(landing.needed));
    return {};
  }

  vector<std::int64_t> absent_experts() const {
    vector<std::int64_t> absent;
    for (std::int64_t expert = 0; expert < layer_.experts->total; ++expert)
      if (std::find(slots_.begin(), slots_.end(), expert) == slots_.end()) absent.push_back(expert);
    return absent;
  }

  /// Experts of other ranks: known by name and shape, needed nowhere here.
  void know_absent_experts(const planned_param& param, const planned_param* scale,
                           const vector<const shard*>& parts, const vector<shard_slice>& slices) {
    for (const std::int64_t expert : absent_experts())
      for (std::size_t i = 0; i < parts.size(); ++i) {
        add_source(param.spec, *parts[i], expert, weight_shape(slices[i]));
        if (scale != nullptr)
          add_source(scale->spec, *parts[i], expert,
                     scale_shape(scale->spec, block_cols_of(*scale, param), *parts[i], slices[i]));
      }
  }

  static constexpr std::int64_t not_stacked = -1;
  static constexpr std::int64_t shared_slot = -2;

  std::span<const param_spec> specs_;
  const extents& layer_;
  vector<std::int64_t> slots_ = {};  ///< global expert of each slot
  layer_plan plan_ = {};
  basic_name_index<Use> source_index_ = {};
};

}  // namespace detail

/// Plans a layer. Refuses, by the checkpoint module's name, what the layout and the cut cannot give.
template <class Use = on_use>
[[nodiscard]] status plan_layer(std::span<const param_spec> specs, std::string_view name, const extents& layer,
                                layer_plan& plan) {
  return detail::layer_planner<Use>(specs, name, layer).run(plan);
}

}  // namespace wreload
