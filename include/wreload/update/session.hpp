#pragma once
/// `session`: an open update, behind the handle and its lanes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "digest.hpp"
#include "model_core.hpp"
#include "options.hpp"

namespace wreload {

namespace detail {

/// How an accepted piece counts in the report.
struct counted_piece {
  using counter = load_count report::*;  // named: nvcc hands the declarator to gcc in a form that it warns of
  std::int64_t bytes = 0;
  counter as = nullptr;  ///< null: loaded and needed
  dtype type = dtype::none;
  bool is_first = true;    ///< of its tensor
  bool is_absent = false;  ///< no byte of its tensor belongs here
};

/// Stream-ordered work of one lane, and the buffers it reuses.
template <executor Executor>
struct lane_state {
  explicit lane_state(typename Executor::lane&& opened) : lane(static_cast<typename Executor::lane&&>(opened)) {}

  typename Executor::lane lane;
  admission work = {};
  std::vector<counted_piece> counted = {};
};

/// An open update: everything the handle and its lanes do.
template <executor Executor>
class session {
 public:
  using core_type = model_core<Executor>;

  session(core_type& core, const start_options& options) : core_(core), detect_changes_(options.detect_changes) {
    lanes_.emplace_back(core.run.open(options.stream));
    before_ = core.state.load();
    core.state = model_state::updating;
    core.update_open = true;
    started_ = seconds_now();
    launches_ = core.run.launches();
  }
  session(const session&) = delete;             // lanes point to it
  session& operator=(const session&) = delete;
  ~session() { (void)abort(); }

  lane_state<Executor>& main_lane() { return lanes_.front(); }
  lane_state<Executor>* add_lane(stream_ref stream) {
    const lock_scope guard(core_.lock);
    return &lanes_.emplace_back(core_.run.open(stream));
  }

  /// Loads pieces, all or none of them.
  status load(lane_state<Executor>& lane, std::span<const piece> pieces, event_ref ready) {
    for (const piece& part : pieces)  // the host reads those at once, the event orders only the device
      if (ready.handle != nullptr && part.tensor.memory == memory_kind::pageable)
        return refuse(error_code::bad_argument, part.name, "device or pinned memory behind a ready event",
                      "a tensor marked pageable");
    admission& work = lane.work;
    work.clear();
    lane.counted.clear();
    {
      const lock_scope guard(core_.lock);
      if (status refused = check_open(); !refused.ok()) return refused;
      for (const piece& part : pieces)
        if (status refused = admit(part, lane); !refused.ok()) {
          core_.books.release(work.claims);
          return note(refused);
        }
      for (const counted_piece& part : lane.counted) count(part);
      if (work.lands.empty() && work.compares.empty()) return {};
      core_.books.note_written(work.claims);
      wrote_live_ |= !work.lands.empty();
      running_.fetch_add(1, std::memory_order_relaxed);
      if (!work.compares.empty() || shares_bytes(work)) return end_load(enqueue_in_order(lane, ready));
    }
    const status enqueued = enqueue(lane, ready);
    if (enqueued.ok()) return end_load({});
    const lock_scope guard(core_.lock);
    return end_load(enqueued);
  }

  status landing(const piece& wanted, direct_landing* out) {
    const lock_scope guard(core_.lock);
    if (status refused = check_open(); !refused.ok()) return refused;
    return note(grant(wanted, out));
  }

  status adopt(std::span<const std::string_view> names, load_form form) {
    const lock_scope guard(core_.lock);
    if (status refused = check_open(); !refused.ok()) return refused;
    admission claimed;
    std::vector<counted_piece> counted;
    status refused;
    for (const std::string_view name : names)
      if (refused.ok()) refused = adopt_one(name, form, claimed, counted);
    if (refused.ok() && !claimed.compares.empty())
      refused = refuse(error_code::duplicate, names.front(), "bytes that no other name brought", "a twin's");
    if (!refused.ok()) {
      core_.books.release(claimed.claims);
      return note(refused);
    }
    core_.books.note_written(claimed.claims);
    wrote_live_ = true;
    for (const counted_piece& piece : counted) count(piece);
    return {};
  }

  status retract(std::string_view name) {
    const lock_scope guard(core_.lock);
    if (status refused = check_open(); !refused.ok()) return refused;
    const std::int32_t id = core_.records.find_name(name);
    const std::int32_t param = core_.records.find_param(name);
    if (id == no_index && param == no_index) return note(unknown(name));
    if (running_.load() != 0) return busy(name);
    if (status failed = settle_compares(); !failed.ok()) return failed;
    if (id != no_index) {
      core_.books.retract(at(core_.records.names, id).source);
    } else {
      const param_record& record = at(core_.records.params, param);
      for (std::int32_t l = record.first_landing; l < record.first_landing + record.landing_count; ++l)
        core_.books.retract_landing(l);
    }
    // A difference that was found counts no longer for groups that must come anew.
    for (std::size_t group = 0; group < core_.records.twin_groups.size(); ++group)
      if (!core_.books.arrived_any(static_cast<std::int32_t>(group))) core_.run.flags()[group] = 0;
    // What comes again may come on another lane: it must not overtake what is retracted.
    for (auto& lane : lanes_)
      for (auto& other : lanes_)
        if (&lane != &other)
          if (status failed = core_.run.join(lane.lane, other.lane); !failed.ok()) return fail(failed);
    return {};
  }

  status prepare() {
    const lock_scope guard(core_.lock);
    if (status refused = check_open(); !refused.ok()) return refused;
    if (running_.load() != 0) return busy({});
    const double began = seconds_now();
    report_.seconds.load = began - started_;
    if (status refused = check_scope(); !refused.ok()) return refused;
    if (status refused = check_twins(); !refused.ok()) return refused;
    make_jobs();
    prepared_ = true;
    report_.seconds.prepare = seconds_now() - began;
    return {};
  }

  status commit(event_ref* done) {
    const lock_scope guard(core_.lock);
    if (!failed_.ok()) return failed_;
    if (!open_ || !prepared_ || committed_)
      return refuse(error_code::wrong_state, {}, "a prepared update", open_ ? "one that is not" : "a closed one");
    const double began = seconds_now();
    for (auto& lane : lanes_)
      if (&lane != &main_lane())
        if (status failed = core_.run.join(main_lane().lane, lane.lane); !failed.ok()) return fail(failed);
    for (std::size_t key = 0; key < jobs_.size(); ++key) {
      if (jobs_[key].empty()) continue;
      wrote_live_ = true;
      if (status failed = core_.run.dequantise(main_lane().lane, core_.keys[key], jobs_[key]); !failed.ok())
        return fail(failed);
    }
    if (status failed = compute(); !failed.ok()) return fail(failed);
    committed_ = true;
    if (done != nullptr) *done = core_.run.record(main_lane().lane);
    report_.seconds.commit = seconds_now() - began;
    return {};
  }

  status publish() {
    const lock_scope guard(core_.lock);
    if (!failed_.ok()) return failed_;
    if (!open_ || !committed_)
      return refuse(error_code::wrong_state, {}, "a committed update", open_ ? "one that is not" : "a closed one");
    const double began = seconds_now();
    if (status failed = core_.run.wait(main_lane().lane); !failed.ok()) return fail(failed);
    if (status failed = note_changes(); !failed.ok()) return fail(failed);
    if (status failed = warn_unequal_shards(); !failed.ok()) return fail(failed);
    const lock_scope ending(ending_);
    if (closing_) return fail(refuse(error_code::aborted, {}, "an open update", "one that has ended"));
    open_ = false;
    report_.seconds.publish = seconds_now() - began;
    report_.version = ++core_.version;
    close(true);
    return {};
  }

  status abort() {
    status cancelled;
    {
      // Not the model's lock: a call that waits for the device holds that, and may wait for this cancel.
      const lock_scope guard(ending_);
      if (!open_) return {};
      closing_ = true;
      cancelled = core_.run.cancel();
    }
    { const lock_scope passed(core_.lock); }  // a load that was past its checks is counted now, and none follows it
    for (int running = running_.load(); running != 0; running = running_.load()) running_.wait(running);
    const lock_scope guard(core_.lock);
    if (open_) close(false);  // else a publish was faster
    return cancelled;
  }

  bool is_open() const { return open_; }
  bool is_prepared() const { return prepared_; }
  bool is_committed() const { return committed_; }
  const report& last_report() const { return report_; }
  event_ref flush(lane_state<Executor>& lane) { return core_.run.record(lane.lane); }

 private:
  static constexpr std::size_t most_missing_names = 64;

  static status unknown(std::string_view name) {
    return refuse(error_code::unknown_name, name, "a tensor of the model, or an ignored or foreign name", "neither");
  }
  static status busy(std::string_view name) {
    return refuse(error_code::wrong_state, name, "no load running on another lane", "one that runs");
  }

  status fail(const status& failure) {
    if (failed_.ok()) {
      failed_ = failure;
      failed_.wrote_anything = wrote_live_;
    }
    return failed_;
  }

  status check_open() const {
    if (!failed_.ok()) return failed_;
    if (closing_ || !open_) return refuse(error_code::aborted, {}, "an open update", "one that has ended");
    if (prepared_) return refuse(error_code::wrong_state, {}, "an update that takes loads", "a prepared one");
    return {};
  }

  /// Keeps the first refusal of a call that takes tensors.
  status note(const status& result) {
    if (!result.ok() && report_.first_error.ok()) report_.first_error = result;
    return result;
  }

  status grant(const piece& wanted, direct_landing* out) {
    const std::int32_t id = resolve(wanted);
    if (id == no_index) return unknown(wanted.name);
    const name_record name = at(core_.records.names, id);
    const source_record& source = at(core_.records.sources, name.source);
    admission trial;  // checked as a load of the same box, then given back
    tensor_ref shaped{.data = &trial, .type = wanted.tensor.type,
                      .extents = wanted.part.whole ? source.extents : wanted.part.extent};
    status refused = core_.books.admit(name, shaped, wanted.part, trial);
    core_.books.release(trial.claims);
    if (!refused.ok()) return refused;
    if (trial.lands.size() != 1 || !trial.compares.empty() || shares_bytes(trial) ||
        trial.lands[0].from != trial.lands[0].to || trial.lands[0].map != unmapped ||
        trial.lands[0].rows * trial.lands[0].cols != shaped.extents.elements())
      return refuse(error_code::unsupported, wanted.name, "one rectangle of one landing, copied as it is, in checkpoint order",
                    std::to_string(trial.lands.size()) + " landings, or a conversion");
    core_.books.note_written(trial.claims);
    wrote_live_ = true;
    const land_job& job = trial.lands[0];
    *out = {job.destination, job.rows, job.cols, job.destination_row_stride_bytes, job.to};
    return {};
  }

  std::int32_t resolve(const piece& part) const {
    if (!part.id.is_known()) return core_.records.find_name(part.name);
    return part.id.index < static_cast<std::int32_t>(core_.records.names.size()) ? part.id.index : no_index;
  }

  /// Claims one piece and notes how it counts.
  status admit(const piece& part, lane_state<Executor>& lane) {
    admission& work = lane.work;
    const std::int64_t needed_before = work.needed_bytes;
    const std::size_t claims_before = work.claims.size();
    counted_piece counted{.bytes = part.tensor.extents.valid() ? part.tensor.bytes() : 0, .type = part.tensor.type};
    status refused;
    if (part.form == load_form::runtime) {
      const std::int32_t param = core_.records.find_param(part.name);
      refused = param == no_index ? unknown(part.name)
                                  : core_.books.admit_runtime(param, part.tensor, part.part, work);
    } else if (const std::int32_t id = resolve(part); id != no_index) {
      refused = core_.books.admit(at(core_.records.names, id), part.tensor, part.part, work);
      counted.is_first = work.claims.size() > claims_before && work.claims[claims_before].landing == no_index;
      if (work.needed_bytes == needed_before) counted.as = &report::not_needed;
      counted.is_absent = at(core_.records.sources, at(core_.records.names, id).source).landings.empty();
    } else if (matches_any(core_.ignored, part.name)) {
      counted.as = &report::ignored;
    } else if (matches_any(core_.foreign, part.name)) {
      counted.as = &report::foreign;
    } else {
      refused = unknown(part.name);
    }
    if (refused.ok()) lane.counted.push_back(counted);
    return refused;
  }

  void count(const counted_piece& piece) {
    const auto add = [&](load_count& to, bool is_new) {
      to.tensors += is_new;
      to.bytes += piece.bytes;
    };
    // A piece may belong to another rank and its tensor's next piece here: such a tensor is needed.
    if (piece.as != nullptr) add(report_.*piece.as, piece.is_first && (piece.as != &report::not_needed || piece.is_absent));
    if (piece.as != nullptr && piece.as != &report::not_needed) return;
    add(report_.loaded, piece.is_first);
    add(report_.by_dtype[static_cast<std::size_t>(piece.type)], piece.is_first);
  }

  bool shares_bytes(const admission& work) const {
    if (core_.records.twin_groups.empty()) return false;
    for (const claim& part : work.claims)
      if (part.to_group) return true;
    return false;
  }

  status enqueue(lane_state<Executor>& lane, event_ref ready) {
    if (ready.handle != nullptr)
      if (status failed = core_.run.wait_for(lane.lane, ready); !failed.ok()) return failed;
    if (!lane.work.lands.empty())
      if (status failed = core_.run.land(lane.lane, lane.work.lands); !failed.ok()) return failed;
    if (!lane.work.pads.empty())
      if (status failed = core_.run.land(lane.lane, lane.work.pads); !failed.ok()) return failed;
    if (!lane.work.compares.empty()) {
      compared_ = true;
      if (status failed = core_.run.compare(lane.lane, lane.work.compares, lane.work.compared_groups); !failed.ok())
        return failed;
    }
    return {};
  }

  /// Under the lock: bytes that several names share are written and compared in one order over all lanes.
  status enqueue_in_order(lane_state<Executor>& lane, event_ref ready) {
    if (last_sharing_lane_ != nullptr && last_sharing_lane_ != &lane)
      if (status failed = core_.run.join(lane.lane, last_sharing_lane_->lane); !failed.ok()) return failed;
    last_sharing_lane_ = &lane;
    return enqueue(lane, ready);
  }

  /// Ends a load; under the lock if it failed.
  status end_load(const status& enqueued) {
    status result = enqueued.ok() ? enqueued : fail(enqueued);
    if (running_.fetch_sub(1) == 1) running_.notify_all();
    return result;
  }

  status adopt_one(std::string_view name, load_form form, admission& claimed, std::vector<counted_piece>& counted) {
    const std::int32_t id = form == load_form::checkpoint ? core_.records.find_name(name) : no_index;
    const std::int32_t param = form == load_form::runtime ? core_.records.find_param(name) : no_index;
    if (id == no_index && param == no_index) return unknown(name);
    tensor_ref in_place{.data = &claimed};
    if (param != no_index) {
      in_place.type = at(core_.records.params, param).plan.spec.runtime;
      in_place.extents = at(core_.records.params, param).plan.extents;
      counted.push_back({.bytes = in_place.bytes(), .type = in_place.type});
      return core_.books.admit_runtime(param, in_place, {}, claimed);
    }
    const name_record record = at(core_.records.names, id);
    const source_record& source = at(core_.records.sources, record.source);
    in_place.extents = source.extents;
    for (const std::int32_t l : source.landings) {
      const param_record& to = at(core_.records.params, at(core_.records.landings, l).param);
      const dtype stored = to.plan.spec.stored;
      if (to.map != unmapped)
        return refuse(error_code::unsupported, name, "a landing in checkpoint order",
                      to_string(to.plan.spec.map) + " (adopt " + to.name() + " in runtime form)");
      if (in_place.type != dtype::none && in_place.type != stored)
        return refuse(error_code::unsupported, name, "landings of one dtype", "several");
      in_place.type = stored;
    }
    counted.push_back({.bytes = in_place.bytes(), .type = in_place.type});
    return source.landings.empty() ? status{} : core_.books.admit(record, in_place, {}, claimed);
  }

  /// Law 6: by names and boxes.
  status check_scope() {
    report_.missing.clear();
    std::size_t gaps = 0;
    status refused;
    core_.books.for_each_gap([&](std::int32_t l, const rect& gap) {
      const landing_record& where = at(core_.records.landings, l);
      const source_record& source = at(core_.records.sources, where.source);
      if (gaps++ == 0)
        refused = refuse(error_code::incomplete, source.name,
                         to_string(source.accepted) + " " + to_string(source.extents),
                         gap == where.needed ? "nothing" : "nothing for " + to_string(gap));
      if (report_.missing.size() < most_missing_names)
        report_.missing.push_back(source.name + " (" + to_string(gap) + ")");
    });
    if (gaps > 1) refused.got += " (and " + std::to_string(gaps - 1) + " more gaps)";
    return refused;
  }

  /// Waits for comparisons that were enqueued.
  status settle_compares() {
    if (!compared_) return {};
    for (auto& lane : lanes_)
      if (status failed = core_.run.wait(lane.lane); !failed.ok()) return fail(failed);
    return {};
  }

  status check_twins() {
    if (status failed = settle_compares(); !failed.ok() || !compared_) return failed;
    const auto flags = std::span<const std::uint32_t>(core_.run.flags());
    for (std::size_t group = 0; group < flags.size(); ++group) {
      if (flags[group] == 0) continue;
      std::string names;
      for (const std::int32_t l : core_.records.twin_groups[group]) {
        if (!names.empty()) names += " and ";
        names += at(core_.records.sources, at(core_.records.landings, l).source).name;
      }
      return refuse(error_code::conflict, names, "the same bytes under each name", "different ones");
    }
    return {};
  }

  /// One job per run of rows that arrived in the stored format, grouped by key.
  void make_jobs() {
    mark_computed();
    jobs_.assign(core_.keys.size(), {});
    core_.books.for_each_stored_run([&](std::int32_t l, const rect& run) {
      const landing_record& weight = at(core_.records.landings, l);
      const landing_record& scale = at(core_.records.landings, weight.scale);
      const param_record& param = at(core_.records.params, weight.param);
      const param_record& scales = at(core_.records.params, scale.param);
      const std::int64_t block_rows = scales.plan.spec.block_rows;
      const std::int64_t down = run.row_begin - weight.needed.row_begin;
      const std::int64_t phase = weight.row_phase + down;
      std::byte* first = param.row(weight.local_row + down);
      jobs_[static_cast<std::size_t>(at(core_.key_of, weight.param))].push_back(
          {.source = first,
           .destination = first,
           .scale = scales.row(scale.local_row + phase / block_rows),
           .rows = run.rows(),
           .cols = run.cols(),
           .source_row_stride_bytes = param.row_stride_bytes,
           .destination_row_stride_bytes = param.row_stride_bytes,
           .scale_row_stride_bytes = scales.row_stride_bytes,
           .row_phase = static_cast<std::int32_t>(phase % block_rows),
           .col_phase = weight.col_phase});
      report_.converted_rows += run.rows();
    });
  }

  /// Marks the computed params that read something which came in this update, directly or through another.
  void mark_computed() {
    stale_.assign(core_.records.params.size(), 0);
    for (const computed_record& record : core_.records.computed)
      for (const std::int32_t source : record.sources)
        if (at(stale_, source) != 0 || core_.books.param_arrived(source)) at(stale_, record.param) = 1;
  }

  /// Enqueues the marked params, a batch per level of products; launches of the engine's own in between, in order.
  status compute() {
    std::vector<combine_job> batch;
    int level = 0;
    const auto enqueue_batch = [&] {
      status failed = batch.empty() ? status{} : core_.run.combine(main_lane().lane, batch);
      batch.clear();
      return failed;
    };
    for (int last = 0; level <= last; ++level) {
      for (const computed_record& record : core_.records.computed) {
        const param_record& param = at(core_.records.params, record.param);
        last = std::max(last, param.plan.spec.level);
        if (param.plan.spec.level != level || at(stale_, record.param) == 0) continue;
        wrote_live_ = true;
        if (param.plan.spec.kind == param_kind::product) {
          batch.push_back(combine_job_for(record));
        } else if (status failed = launch(record); !failed.ok()) {
          return failed;
        }
      }
      if (status failed = enqueue_batch(); !failed.ok()) return failed;
    }
    return {};
  }

  combine_job combine_job_for(const computed_record& record) const {
    constexpr auto value_bytes = static_cast<std::int64_t>(sizeof(float));
    const param_record& param = at(core_.records.params, record.param);
    combine_job job{.results = param.data,
                    .count = param.plan.computed_values,
                    .factor_count = static_cast<std::int32_t>(record.sources.size()),
                    .inverted = param.plan.spec.product.inverted};
    for (std::size_t i = 0; i < record.sources.size(); ++i) {
      const planned_factor& factor = param.plan.factors[i];
      job.factors[i] = {at(core_.records.params, record.sources[i]).data + factor.first * value_bytes,
                        factor.stride * value_bytes, factor.count, factor.across * value_bytes, factor.inverted};
    }
    return job;
  }

  static runtime_tensor tensor_of(const param_record& param) {
    return {param.data, param.plan.spec.runtime, param.plan.extents, param.row_stride_bytes};
  }

  status launch(const computed_record& record) {
    std::vector<runtime_tensor> from;
    for (const std::int32_t source : record.sources) from.push_back(tensor_of(at(core_.records.params, source)));
    const param_record& to = at(core_.records.params, record.param);
    // An empty batch: the stream waits for the readers, and a cancelled update launches nothing.
    if (status failed = core_.run.combine(main_lane().lane, {}); !failed.ok()) return failed;
    return to.plan.spec.launch.launch(core_.run.stream_of(main_lane().lane), from, tensor_of(to));
  }

  /// Kernels use the greatest of these scalars for all shards: say so where it is not every shard's.
  status warn_unequal_shards() {
    for (std::size_t i = 0; i < core_.records.params.size(); ++i) {
      const param_record& param = core_.records.params[i];
      if (!param.plan.spec.expect_equal || !core_.books.param_arrived(static_cast<std::int32_t>(i))) continue;
      std::vector<float> values(static_cast<std::size_t>(param.plan.rows));
      if (status failed = core_.run.read(main_lane().lane, reinterpret_cast<std::byte*>(values.data()), param.data,
                                         param.plan.bytes());
          !failed.ok())
        return failed;
      const auto other = std::adjacent_find(values.begin(), values.end(), [](float a, float b) { return a != b; });
      if (other == values.end()) continue;
      const auto shown = [&](std::size_t row) {
        const landing_record& from = at(core_.records.landings, param.first_landing + static_cast<std::int32_t>(row));
        char value[32] = {};
        std::snprintf(value, sizeof value, "%.9g", static_cast<double>(values[row]));
        return at(core_.records.sources, from.source).name + " = " + value;
      };
      const auto row = static_cast<std::size_t>(other - values.begin());
      report_.warnings.push_back(param.name() + ": shards differ, " + shown(row) + " and " + shown(row + 1) +
                                 "; the greatest scales them all");
    }
    return {};
  }

  status note_changes() {
    if (!detect_changes_) {
      core_.has_digest = false;
      return {};
    }
    std::uint64_t now = 0;
    if (status failed = digest_model(core_.run, main_lane().lane, core_.records, &now); !failed.ok()) return failed;
    if (core_.has_digest) report_.changed = now != core_.last_digest;
    core_.last_digest = now;
    core_.has_digest = true;
    return {};
  }

  void close(bool succeeded) {
    if (succeeded)
      for (std::size_t s = 0; s < core_.records.sources.size(); ++s) {
        const auto id = static_cast<std::int32_t>(s);
        report_.not_sent += core_.books.is_declared_source(id) && !core_.books.arrived(id);
      }
    for (const param_record& param : core_.records.params) {
      if (param.plan.spec.kind != param_kind::mapped) continue;
      ++(param.plan.pad_bytes() == 0 ? report_.aliased : report_.bound);
      report_.shared_bytes += param.plan.bytes() - param.plan.pad_bytes();
    }
    report_.launches = core_.run.launches() - launches_;
    report_.peak_extra_device_bytes = core_.run.allocated_bytes() - core_.sealed_bytes;
    core_.books.settle(succeeded);
    core_.books.clear();
    core_.state = succeeded ? model_state::live : wrote_live_ ? model_state::undefined : before_;
    open_ = false;
    core_.update_open = false;
  }

  core_type& core_;
  std::list<lane_state<Executor>> lanes_ = {};                         ///< the first is the update's own
  std::vector<std::vector<dequant_job>> jobs_ = {};                ///< per key
  std::vector<std::uint8_t> stale_ = {};                           ///< per param: computed at commit
  lane_state<Executor>* last_sharing_lane_ = nullptr;
  std::atomic<int> running_ = 0;  ///< loads past their checks
  report report_ = {};
  status failed_ = {};            ///< sticky
  model_state before_ = model_state::undefined;
  double started_ = 0;
  std::int64_t launches_ = 0;
  bool detect_changes_ = false;
  light_lock ending_ = {};             ///< around the end: either a publish or an abort; taken inside the model's lock
  std::atomic<bool> open_ = true;
  std::atomic<bool> closing_ = false;
  bool prepared_ = false;
  bool committed_ = false;
  bool wrote_live_ = false;
  bool compared_ = false;
};

}  // namespace detail
}  // namespace wreload
