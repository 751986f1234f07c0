#pragma once
/// `post_load`: what combines tensors once they have landed. Conversions in one batch per key, then computed params in
/// one batch per level.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../core/on_use.hpp"
#include "model_core.hpp"
#include "staging.hpp"

namespace wreload::detail {

/// Conversion jobs by key.
template <executor Executor>
using conversion_jobs = dependent<std::vector<std::vector<dequant_job>>, Executor>;

/// Work is collected layer by layer, each landing once per arrival, and enqueued for all of them together.
///
/// A landing is converted in place, once it has landed; or, where its codes and its scales are at hand together, on its
/// way: `fused`, which moves 3 bytes an element instead of 5.
template <executor Executor>
class post_load {
  template <class T>
  using vector = dependent<std::vector<T>, Executor>;
  using admission = dependent<wreload::admission, Executor>;
  using step_list = dependent<std::vector<planned_step<Executor>>, Executor>;

 public:
  /// `offset`: from live addresses to those that the update writes.
  post_load(model_core<Executor>& core, std::ptrdiff_t offset) : core_(core), offset_(offset) {}

  void collect(const layer_record& layer) {
    if (converted_.empty()) converted_.resize(core_.records.landings.size());
    if (jobs_.empty()) jobs_.resize(core_.keys.size());
    for (std::int32_t p = layer.first_param; p < layer.first_param + layer.param_count; ++p) {
      const param_record& param = at(core_.records.params, p);
      if (!param.plan.spec.converts()) continue;
      for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l) {
        if (at(converted_, l) != how::no) continue;
        core_.books.for_each_stored_run(l, [&](const rect& run) { add_conversion(l, run); });
      }
    }
    collect_computed(layer);
  }

  /// Collects the landings of which all stored codes that have come lie aside, where they can be converted on their way;
  /// those parts must then not be landed (see `is_fused`). Before `collect`.
  void collect_aside(std::span<const staged_part> parts) {
    if (converted_.empty()) converted_.resize(core_.records.landings.size());
    if (jobs_.empty()) jobs_.resize(core_.keys.size());
    aside_.clear();
    for (const staged_part& part : parts) {
      if (!is_stored(part.job, part.what) || at(converted_, part.what.landing) != how::no) continue;
      at(converted_, part.what.landing) = how::fused;
      aside_.push_back(part.what.landing);
    }
    for (const staged_part& part : parts)
      if (is_stored(part.job, part.what) && at(converted_, part.what.landing) == how::fused && !can_fuse(part.job, part.what))
        at(converted_, part.what.landing) = how::no;
    for (const staged_part& part : parts)
      if (is_fused(part)) jobs_[key_of(part.what.landing)].push_back(fused_job(part.job, part.what));
    for (const std::int32_t landing : aside_)
      if (at(converted_, landing) == how::fused) count_fused(landing);
  }
  bool is_fused(const staged_part& part) const {
    return !converted_.empty() && is_stored(part.job, part.what) && at(converted_, part.what.landing) == how::fused;
  }

  /// Where a whole landing is loaded with its scales at hand, adds its conversion to `jobs` instead of landing it.
  bool fuse(const land_job& job, const landed_part& what, conversion_jobs<Executor>& jobs) {
    const landing_record& weight = at(core_.records.landings, what.landing);
    if (!is_stored(job, what) || !can_fuse(job, what) || !(what.part == weight.needed) ||
        !core_.books.arrivals().is_whole(weight.scale))
      return false;
    if (jobs.empty()) jobs.resize(core_.keys.size());
    jobs[key_of(what.landing)].push_back(fused_job(job, what));
    note_fused(what.landing);
    return true;
  }
  /// Converts whole landings of a load on their way, where their scales came before, or (`in_load`) in this load. `fused`:
  /// receives those landings.
  void fuse_load(admission& work, conversion_jobs<Executor>& jobs, bool in_load, vector<std::int32_t>* fused) {
    scales_.clear();
    if (in_load)
      for (const landed_part& what : work.landed)
        if (at(core_.records.landings, what.landing).weight != no_index)
          scales_.push_back({what.landing, what.part.elements()});
    std::sort(scales_.begin(), scales_.end(), [](const came& a, const came& b) { return a.landing < b.landing; });
    const auto has_scale = [&](std::int32_t landing) {
      const std::int32_t scale = at(core_.records.landings, landing).scale;
      if (scale == no_index || !in_load) return scale != no_index;
      auto part = std::lower_bound(scales_.begin(), scales_.end(), scale, [](const came& a, std::int32_t of) { return a.landing < of; });
      std::int64_t elements = 0;
      for (; part != scales_.end() && part->landing == scale; ++part) elements += part->elements;
      return elements == at(core_.records.landings, scale).needed.elements();
    };
    std::size_t kept = 0;
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      const std::int32_t landing = work.landed[i].landing;
      if (has_scale(landing) && fuse(work.lands[i], work.landed[i], jobs)) {
        if (fused != nullptr) fused->push_back(landing);
        continue;
      }
      work.lands[kept] = work.lands[i];
      work.landed[kept++] = work.landed[i];
    }
    work.lands.resize(kept);
    work.landed.resize(kept);
  }
  /// A whole landing was converted on its way.
  void note_fused(std::int32_t landing) {
    if (converted_.empty()) converted_.resize(core_.records.landings.size());
    at(converted_, landing) = how::fused;
    fused_rows_ += at(core_.records.landings, landing).needed.rows();
    converted_rows_ += at(core_.records.landings, landing).needed.rows();
  }

  /// What arrived under the landing is gone: it is converted when it has come again.
  void forget(std::int32_t landing) {
    if (!converted_.empty()) at(converted_, landing) = how::no;
  }

  bool is_converted(std::int32_t landing) const { return !converted_.empty() && at(converted_, landing) != how::no; }
  bool empty() const {
    for (const auto& each : jobs_)
      if (!each.empty()) return false;
    return due_.empty();
  }
  std::int64_t converted_rows() const { return converted_rows_; }
  std::int64_t fused_rows() const { return fused_rows_; }
  /// The computed params that `enqueue` will write.
  std::span<const computed_record* const> computed() const { return due_; }

  /// Enqueues what was collected, which is then forgotten. `steps`: receives it, to be done again.
  status enqueue(typename Executor::lane& lane, step_list* steps = nullptr) {
    next_step(lane, steps);
    if (status failed = convert(lane, jobs_); !failed.ok()) return failed;
    if (status failed = compute(lane, steps); !failed.ok()) return failed;
    due_.clear();
    return {};
  }

  /// Does again what was enqueued.
  status replay(typename Executor::lane& lane, const step_list& steps) {
    for (const planned_step<Executor>& step : steps) {
      if (!step.table.empty())
        if (status failed = core_.run.replay(lane, step.table, 0); !failed.ok()) return failed;
      if (step.launched == no_index) continue;
      if (status failed = launch(lane, step.launched, step.from, step.to); !failed.ok()) return failed;
    }
    return {};
  }

  /// Enqueues conversions, a batch per key, and empties the list.
  status convert(typename Executor::lane& lane, conversion_jobs<Executor>& jobs) {
    for (std::size_t key = 0; key < jobs.size(); ++key) {
      if (jobs[key].empty()) continue;
      if (status failed = core_.run.dequantise(lane, core_.keys[key], jobs[key]); !failed.ok()) return failed;
      jobs[key].clear();
    }
    return {};
  }

 private:
  enum class how : std::uint8_t { no, in_place, fused };

  /// A part of a scale in a load.
  struct came {
    std::int32_t landing = no_index;
    std::int64_t elements = 0;
  };

  /// What a kernel that reads 8 bytes at a time asks of each row.
  static constexpr std::int64_t fused_alignment = 8;

  std::size_t key_of(std::int32_t l) const {
    return static_cast<std::size_t>(at(core_.key_of, at(core_.records.landings, l).param));
  }

  bool is_stored(const land_job& job, const landed_part& what) const {
    const param_spec& spec = at(core_.records.params, at(core_.records.landings, what.landing).param).plan.spec;
    return spec.converts() && job.from == spec.stored;
  }

  static bool can_fuse(const land_job& job, const landed_part& what, std::int32_t twins) {
    const auto address = reinterpret_cast<std::uintptr_t>(job.source);
    return twins == no_index && !what.shared && job.source_col_stride_bytes == 1 &&
           Executor::converts_from(job.memory) && address % fused_alignment == 0 &&
           (job.rows == 1 || job.source_row_stride_bytes % fused_alignment == 0);
  }
  bool can_fuse(const land_job& job, const landed_part& what) const {
    return can_fuse(job, what, at(core_.records.landings, what.landing).twins);
  }

  void count_fused(std::int32_t l) {
    core_.books.for_each_stored_run(l, [&](const rect& run) {
      fused_rows_ += run.rows();
      converted_rows_ += run.rows();
    });
  }

  /// The conversion of a part of a landing, in place.
  dequant_job job_for(std::int32_t l, const rect& part) const {
    const landing_record& weight = at(core_.records.landings, l);
    const landing_record& scale = at(core_.records.landings, weight.scale);
    const param_record& param = at(core_.records.params, weight.param);
    const param_record& scales = at(core_.records.params, scale.param);
    const param_spec& grid = scales.plan.spec;
    const std::int64_t down = part.row_begin - weight.needed.row_begin;
    const std::int64_t right = part.col_begin - weight.needed.col_begin;
    const std::int64_t row_phase = weight.row_phase + down, col_phase = weight.col_phase + right;
    std::byte* first = param.row(weight.local_row + down) + offset_;
    return {.source = first + right * bytes_of(param.plan.spec.stored),
            .destination = first + right * bytes_of(param.plan.spec.runtime),
            .scale = scales.row(scale.local_row + row_phase / grid.block_rows) +
                     col_phase / grid.block_cols * bytes_of(grid.runtime) + offset_,
            .rows = part.rows(),
            .cols = part.cols(),
            .source_row_stride_bytes = param.row_stride_bytes,
            .destination_row_stride_bytes = param.row_stride_bytes,
            .scale_row_stride_bytes = scales.row_stride_bytes,
            .row_phase = static_cast<std::int32_t>(row_phase % grid.block_rows),
            .col_phase = static_cast<std::int32_t>(col_phase % grid.block_cols)};
  }

  dequant_job fused_job(const land_job& from, const landed_part& what) const {
    dequant_job job = job_for(what.landing, what.part);
    job.source = from.source;
    job.source_row_stride_bytes = from.source_row_stride_bytes;
    return job;
  }

  void add_conversion(std::int32_t l, const rect& run) {
    jobs_[key_of(l)].push_back(job_for(l, run));
    converted_rows_ += run.rows();
    at(converted_, l) = how::in_place;
  }

  /// The computed params that read something which came in this update, directly or through another.
  void collect_computed(const layer_record& layer) {
    if (layer.computed_count == 0) return;
    stale_.assign(static_cast<std::size_t>(layer.param_count), 0);
    for (std::int32_t i = layer.first_computed; i < layer.first_computed + layer.computed_count; ++i) {
      const computed_record& record = at(core_.records.computed, i);
      for (const std::int32_t source : record.sources)
        if (at(stale_, source - layer.first_param) != 0 || core_.books.param_arrived(source))
          at(stale_, record.param - layer.first_param) = 1;
      if (at(stale_, record.param - layer.first_param) != 0) due_.push_back(&record);
    }
  }

  /// A batch per level of products; launches of the engine's own in between, in order.
  status compute(typename Executor::lane& lane, step_list* steps) {
    vector<combine_job> batch;
    for (int level = 0, last = 0; level <= last; ++level) {
      for (const computed_record* record : due_) {
        const param_spec& spec = at(core_.records.params, record->param).plan.spec;
        last = std::max(last, spec.level);
        if (spec.level != level) continue;
        if (spec.kind == param_kind::product) {
          batch.push_back(combine_job_for(*record));
        } else {
          vector<runtime_tensor> from;
          for (const std::int32_t source : record->sources) from.push_back(tensor_of(source));
          const runtime_tensor to = tensor_of(record->param);
          if (status failed = launch(lane, record->param, from, to); !failed.ok()) return failed;
          if (steps == nullptr) continue;
          steps->back().launched = record->param;
          steps->back().from = from;
          steps->back().to = to;
          next_step(lane, steps);
        }
      }
      if (batch.empty()) continue;
      if (status failed = core_.run.combine(lane, batch); !failed.ok()) return failed;
      batch.clear();
    }
    return {};
  }

  combine_job combine_job_for(const computed_record& record) const {
    constexpr auto value_bytes = static_cast<std::int64_t>(sizeof(float));
    const param_record& param = at(core_.records.params, record.param);
    combine_job job{.results = param.data + offset_,
                    .count = param.plan.computed_values,
                    .factor_count = static_cast<std::int32_t>(record.sources.size()),
                    .inverted = param.plan.spec.product.inverted};
    for (std::size_t i = 0; i < record.sources.size(); ++i) {
      const planned_factor& factor = param.plan.factors[i];
      job.factors[i] = {at(core_.records.params, record.sources[i]).data + offset_ + factor.first * value_bytes,
                        factor.stride * value_bytes, factor.count, factor.across * value_bytes, factor.inverted};
    }
    return job;
  }

  runtime_tensor tensor_of(std::int32_t id) const {
    const param_record& param = at(core_.records.params, id);
    return {param.data + offset_, param.plan.spec.runtime, param.plan.extents, param.row_stride_bytes};
  }

  status launch(typename Executor::lane& lane, std::int32_t param, std::span<const runtime_tensor> from,
                const runtime_tensor& to) {
    // An empty batch: the stream waits for the readers, and a cancelled update launches nothing.
    if (status failed = core_.run.combine(lane, {}); !failed.ok()) return failed;
    return at(core_.records.params, param).plan.spec.launch.launch(core_.run.stream_of(lane), from, to);
  }

  /// What is enqueued from here on is kept in a step of its own.
  void next_step(typename Executor::lane& lane, step_list* steps) {
    if (steps == nullptr) return;
    steps->emplace_back();
    core_.run.keep(lane, &steps->back().table);
  }

  model_core<Executor>& core_;
  std::ptrdiff_t offset_;
  vector<how> converted_ = {};                     ///< per landing: how its rows in stored format were collected
  conversion_jobs<Executor> jobs_ = {};
  vector<const computed_record*> due_ = {};
  vector<came> scales_ = {};                       ///< of the load that is being placed, by landing
  vector<std::int32_t> aside_ = {};                ///< landings whose codes lie aside, each once
  vector<std::uint8_t> stale_ = {};                ///< per param of a layer
  std::int64_t converted_rows_ = 0;
  std::int64_t fused_rows_ = 0;
};

}  // namespace wreload::detail
