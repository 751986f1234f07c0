#pragma once
/// `session`: an open update, behind the handle and its lanes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/on_use.hpp"
#include "aside_memory.hpp"
#include "checks.hpp"
#include "digest.hpp"
#include "intake.hpp"
#include "landed_digests.hpp"
#include "model_core.hpp"
#include "options.hpp"
#include "plan_follower.hpp"
#include "post_load.hpp"
#include "spare_pages.hpp"
#include "staged_digests.hpp"
#include "staging.hpp"
#include "undo_image.hpp"

namespace wreload {

namespace detail {

/// Stream-ordered work of one lane, and the buffers it reuses.
template <executor Executor>
struct lane_state {
  explicit lane_state(typename Executor::lane&& opened) : lane(static_cast<typename Executor::lane&&>(opened)) {}

  typename Executor::lane lane;
  std::atomic<bool> runs = false;  ///< a load that is past its checks
  dependent<accepted, Executor> load = {};
  conversion_jobs<Executor> fused = {};  ///< of the load, instead of landings
  dependent<std::vector<piece>, Executor> pieces = {};  ///< of a bucket
  bool records = false;                                 ///< the load, for a plan
  planned_bucket<Executor> recorded = {};
  dependent<std::vector<land_digest>, Executor> digests = {};  ///< of the load's landings
};

/// An open update: everything the handle and its lanes do. `open` comes first.
///
/// Where loads of a layer go: to live storage (direct; swap, whose storage is the spare pages; a layerwise layer that
/// found no room), or aside until the layer (layerwise) or the update (staged) is committed.
template <executor Executor>
class session {
  template <class T>
  using vector = dependent<std::vector<T>, Executor>;
  using admission = dependent<wreload::admission, Executor>;
  using staging = basic_staging<Executor>;

 public:
  using core_type = model_core<Executor>;

  session(core_type& core, const start_options& options)
      : core_(core), intake_(core), mode_(options.mode), readers_(options.readers.begin(), options.readers.end()),
        detect_changes_(options.detect_changes),
        writes_over_((mode_ == update_mode::direct || mode_ == update_mode::swap) && options.undo == undo_mode::none),
        offset_(options.mode == update_mode::swap ? core.pages->spare() - core.pages->data() : 0),
        post_load_(core, offset_), staging_(core.records, options.staging.where),
        memory_(core.run, staging_.space(), options.staging),
        follower_(core, mode_, (mode_ == update_mode::direct || mode_ == update_mode::swap) && is_complete() &&
                                   options.undo == undo_mode::none && options.digests.empty() && !options.digest_landed) {
    lanes_.emplace_back(core.run.open(options.stream));
    if (options.undo == undo_mode::host) undo_.emplace(core);
    digests_.assign(options.digests.begin(), options.digests.end());
    if (options.digest_landed || (!digests_.empty() && mode_ != update_mode::staged)) landed_digests_.emplace(core);
    is_direct_.assign(core.records.layers.size(), mode_ == update_mode::direct || mode_ == update_mode::swap);
    is_touched_.assign(core.records.layers.size(), 0);
    before_ = core.state.load();
    core.update_open = true;
    started_ = seconds_now();
    launches_ = core.run.launches();
  }
  session(const session&) = delete;             // lanes point to it
  session& operator=(const session&) = delete;
  ~session() {
    undecided_ = core_.state == model_state::in_doubt;
    (void)abort();
  }

  /// Takes the memory that the mode needs. After a refusal the session is to be destroyed.
  status open() {
    if (landed_digests_) {
      std::byte* memory = nullptr;
      const status failed = landed_digests_->open(&memory);
      if (memory != nullptr) memory_.own(memory);
      if (!failed.ok()) return failed;
    }
    if (mode_ == update_mode::direct || mode_ == update_mode::layerwise) core_.state = model_state::updating;
    if (mode_ == update_mode::swap) {
      core_.previous.reset();  // its pages are written from here on
      overtakes_ = true;       // by the copy
      return copy_to_spare(core_, main_lane().lane, is_complete());
    }
    return mode_ == update_mode::direct ? status{} : memory_.open();
  }

  lane_state<Executor>& main_lane() { return lanes_.front(); }
  lane_state<Executor>* add_lane(stream_ref stream) {
    const lock_scope guard(core_.lock);
    lane_state<Executor>& added = lanes_.emplace_back(core_.run.open(stream));
    if (mode_ != update_mode::swap) return &added;
    const status failed = core_.run.join(added.lane, main_lane().lane);  // behind the copy of what is not sent
    if (!failed.ok()) (void)fail(failed);
    return &added;
  }

  /// Loads a bucket: as the plan has it, or its pieces.
  status load(lane_state<Executor>& lane, const bucket& from, event_ref ready) {
    const std::uint64_t manifest = from.manifest != 0 ? from.manifest : manifest_of(from);
    const planned_bucket<Executor>* known = nullptr;
    {
      const lock_scope guard(core_.lock);
      if (status refused = check_open(); !refused.ok()) return refused;
      known = follower_.follow(from, manifest, ready);
      if (known != nullptr) {
        known->tally.add_to(report_);
        ++report_.replayed_buckets;
        if (known->table.empty()) return {};
        if (known->writes) note_live_write();
        lane.runs.store(true, std::memory_order_relaxed);
        if (known->shares_bytes) {
          const status failed = follow_last(lane);
          return end_load(lane, failed.ok() ? follower_.replay(lane.lane, *known, from, ready) : failed);
        }
      }
    }
    if (known == nullptr) {
      const status refused = point_into(from, lane.pieces);
      if (refused.ok()) return load(lane, lane.pieces, ready, &from, manifest);
      const lock_scope guard(core_.lock);
      return note(refused);
    }
    const status enqueued = follower_.replay(lane.lane, *known, from, ready);
    if (enqueued.ok()) return end_load(lane, {});
    const lock_scope guard(core_.lock);
    return end_load(lane, enqueued);
  }

  /// Loads pieces, all or none of them; `from` is the bucket that they are, if any.
  status load(lane_state<Executor>& lane, std::span<const piece> pieces, event_ref ready, const bucket* from = nullptr,
              std::uint64_t manifest = 0) {
    for (const piece& part : pieces)  // the host reads those at once, the event orders only the device
      if (ready.handle != nullptr && part.tensor.memory == memory_kind::pageable)
        return refuse(error_code::bad_argument, part.name, "device or pinned memory behind a ready event",
                      "a tensor marked pageable");
    {
      const lock_scope guard(core_.lock);
      if (status refused = check_open(); !refused.ok()) return refused;
      leave_plan(from != nullptr);
      if (status refused = intake_.take(pieces, lane.load); !refused.ok()) return note(refused);
      lane.records = follower_.records();
      if (lane.records) lane.recorded = {};
      if (status refused = place(lane); !refused.ok()) return refused;
      if (lane.records) {
        follower_.begin(lane.recorded, *from, manifest, lane.load, intake_.shares_bytes(lane.load.work));
        lane.records = follower_.records();
      }
      for (const counted_piece& part : lane.load.counted) count(part, report_);
      const admission& work = lane.load.work;
      core_.books.note_written(work.claims);
      if (work.lands.empty() && work.compares.empty() && lane.fused.empty()) {
        keep_recorded(lane);
        return {};
      }
      lane.runs.store(true, std::memory_order_relaxed);
      const bool in_order = mode_ == update_mode::layerwise || !work.compares.empty() || intake_.shares_bytes(work);
      if (in_order) return end_load(lane, enqueue_in_order(lane, ready));
    }
    const status enqueued = enqueue(lane, ready);
    if (enqueued.ok() && !lane.records) return end_load(lane, {});
    const lock_scope guard(core_.lock);
    return end_load(lane, enqueued);
  }

  status landing(const piece& wanted, direct_landing* out) {
    const lock_scope guard(core_.lock);
    if (status refused = check_open(); !refused.ok()) return refused;
    leave_plan();
    return note(grant(wanted, out));
  }

  status adopt(std::span<const std::string_view> names, load_form form) {
    const lock_scope guard(core_.lock);
    if (status refused = check_open(); !refused.ok()) return refused;
    leave_plan();
    lane_state<Executor>& lane = main_lane();
    if (status refused = intake_.take_in_place(names, form, lane.load); !refused.ok()) return note(refused);
    const admission& work = lane.load.work;
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      const landed_part& what = work.landed[i];
      const bool may_be_live = goes_live(what.landing) && mode_ != update_mode::swap;
      if (staging_.was_granted(work.lands[i], what) ||
          (may_be_live && (!undo_ || (!what.shared && undo_->has_landing(what.landing)))))
        continue;
      core_.books.release(work.claims);
      return note(refuse(error_code::unsupported, source_of(what.landing),
                         "bytes that were written where `landing` said", "a tensor that has no landing in this update"));
    }
    core_.books.note_written(work.claims);
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      touch(work.landed[i].landing);
      if (goes_live(work.landed[i].landing)) note_live_write();
      if (mode_ != update_mode::swap) staging_.adopt(work.lands[i], work.landed[i]);  // also of a layer gone direct since
    }
    for (const counted_piece& part : lane.load.counted) count(part, report_);
    if (mode_ != update_mode::layerwise) return {};
    status failed = follow_last(lane);
    if (failed.ok()) failed = commit_whole_layers(lane);
    return failed.ok() ? failed : fail(failed);
  }

  status retract(std::string_view name) {
    const lock_scope guard(core_.lock);
    if (status refused = check_open(); !refused.ok()) return refused;
    leave_plan();
    const std::int32_t id = core_.records.names.find(name);
    const std::int32_t param = core_.records.find_param(name);
    if (id == no_index && param == no_index) return note(intake_.unknown(name));
    if (any_runs()) return busy(name);
    if (status failed = settle_compares(); !failed.ok()) return failed;
    if (landed_digests_)  // sums begin anew behind everything that was added to them
      if (status failed = join_lanes(main_lane()); !failed.ok()) return failed;
    if (id != no_index) {
      const std::int32_t source = core_.records.names[id].source;
      for (const std::int32_t l : at(core_.records.sources, source).landings)
        if (status failed = retract_landing(l); !failed.ok()) return fail(failed);
      core_.books.retract(source);
    } else {
      const param_record& record = at(core_.records.params, param);
      for (std::int32_t l = record.first_landing; l < record.first_landing + record.landing_count; ++l)
        if (status failed = retract_landing(l); !failed.ok()) return fail(failed);
    }
    // A difference that was found counts no longer for groups that must come anew.
    for (std::size_t group = 0; group < core_.records.twin_groups.size(); ++group)
      if (!core_.books.arrivals().any_of_group(static_cast<std::int32_t>(group))) core_.run.flags()[group] = 0;
    // What comes again may come on another lane: it must not overtake what is retracted.
    for (auto& lane : lanes_)
      for (auto& other : lanes_)
        if (&lane != &other)
          if (status failed = core_.run.join(lane.lane, other.lane); !failed.ok()) return fail(failed);
    overtakes_ = true;
    return {};
  }

  status prepare() {
    const lock_scope guard(core_.lock);
    if (status refused = check_open(); !refused.ok()) return refused;
    if (any_runs()) return busy({});
    const double began = seconds_now();
    report_.seconds.load = began - started_;
    if (status refused = follower_.has_all() ? prepare_planned() : prepare_loaded(); !refused.ok()) return refused;
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
    const bool is_staged = mode_ == update_mode::staged;
    if (is_staged)
      if (status failed = core_.run.hold(readers_); !failed.ok()) return fail(failed);
    if (is_staged && pause_began_ == 0) pause_began_ = began;
    if (status failed = enqueue_commit(); !failed.ok()) return fail(failed);
    if (mode_ == update_mode::swap)
      if (status failed = exchange(); !failed.ok()) return fail(failed);
    committed_ = true;
    if (done != nullptr) *done = core_.run.record(main_lane().lane);
    report_.seconds.commit = seconds_now() - began;
    return {};
  }

  /// Waits for the commit, and for everything else that can fail before `publish`.
  status settle() {
    const lock_scope guard(core_.lock);
    return settle_locked();
  }

  status publish() {
    const lock_scope guard(core_.lock);
    const double began = seconds_now();
    if (status failed = settle_locked(); !failed.ok()) return failed;
    const lock_scope last(ending_);
    if (closing_) return fail(refuse(error_code::aborted, {}, "an open update", "one that has ended"));
    open_ = false;
    report_.seconds.publish = seconds_now() - began;
    if (pause_began_ != 0) report_.pause_seconds = seconds_now() - pause_began_;
    core_.version = ++core_.latest_version;
    report_.version = core_.version;
    for (std::size_t i = 0; i < is_touched_.size(); ++i)
      if (is_touched_[i] != 0) core_.layer_versions[i] = core_.version;
    close(ending::published);
    return {};
  }

  /// The outcome elsewhere is not known: the model must not serve until `publish` or `abort` decides.
  status doubt() {
    const lock_scope guard(core_.lock);
    if (!open_ || !committed_)
      return refuse(error_code::wrong_state, {}, "a committed update", open_ ? "one that is not" : "a closed one");
    core_.state = model_state::in_doubt;
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
    wait_for_loads();
    const lock_scope guard(core_.lock);
    if (!open_) return cancelled;  // a publish was faster
    leave_plan();
    can_still_run_ = !cancelled.ok();
    if (!wrote_live_) {
      close(ending::unwritten);
      return cancelled;
    }
    const status undone = cancelled.ok() ? undo() : cancelled;
    close(undone.ok() ? ending::undone : ending::torn);
    return undone.code == error_code::unsupported ? status{} : undone;
  }

  bool is_open() const { return open_; }
  bool is_prepared() const { return prepared_; }
  bool is_committed() const { return committed_; }
  const report& last_report() const { return report_; }
  status append_landed_digests(digest_list& list) const {
    if (!landed_digests_ || !prepared_)
      return refuse(error_code::wrong_state, {}, "a prepared update that was asked for digests",
                    prepared_ ? "one that was not" : "one that is not prepared");
    landed_digests_->append(list);
    return {};
  }
  event_ref flush(lane_state<Executor>& lane) { return core_.run.record(lane.lane); }

 private:
  enum class ending : std::uint8_t { published, unwritten, undone, torn };

  static status busy(std::string_view name) {
    return refuse(error_code::wrong_state, name, "no load running on another lane", "one that runs");
  }

  /// Whether a load is past its checks. Under the lock.
  bool any_runs() const {
    for (const auto& lane : lanes_)
      if (lane.runs.load(std::memory_order_acquire)) return true;
    return false;
  }
  /// Waits for loads past their checks; none follows them, since the update is closing. Looks now and then: telling who
  /// waits would cost each load an atomic read-modify-write.
  void wait_for_loads() {
    for (;;) {
      {
        const lock_scope guard(core_.lock);
        if (!any_runs()) return;
      }
      sleep_briefly();
    }
  }

  bool is_complete() const { return core_.books.scope().is_complete(); }

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

  bool goes_live(std::int32_t landing) const { return at(is_direct_, core_.records.layer_of(landing)) != 0; }
  std::string_view source_of(std::int32_t landing) const {
    return at(core_.records.sources, at(core_.records.landings, landing).source).name;
  }
  void touch(std::int32_t landing) { at(is_touched_, core_.records.layer_of(landing)) = 1; }
  void note_live_write() {
    if (mode_ == update_mode::swap) return;  // spare pages
    wrote_live_ = true;
    if (pause_began_ == 0) pause_began_ = seconds_now();
    if (core_.state.load(std::memory_order_relaxed) != model_state::updating) core_.state = model_state::updating;
  }

  /// Decides where the bytes of an accepted load go, and rewrites its jobs. On a refusal its claims are given back.
  status place(lane_state<Executor>& lane) {
    admission& work = lane.load.work;
    if (writes_over_) {
      for (std::size_t i = 0; i < work.lands.size(); ++i) {
        touch(work.landed[i].landing);
        work.lands[i].destination += offset_;
      }
      if (!work.lands.empty()) note_live_write();
    } else if (status refused = place_lands(lane); !refused.ok()) {
      return refused;
    }
    const auto is_live = [this](std::int32_t landing) { return goes_live(landing); };
    for (const landed_part& what : work.compared) touch(what.landing);
    if (!work.pads.empty()) staging_.place_pads(work, is_live, offset_);
    if (!work.compares.empty()) staging_.place_compares(work, is_live, offset_);
    if (landed_digests_) landed_digests_->note(work.landed);
    if (landed_digests_ || core_.keys.empty() || (mode_ != update_mode::direct && mode_ != update_mode::swap)) return {};
    post_load_.fuse_load(work, lane.fused, lanes_.size() > 1 || lane.records, lane.records ? &lane.recorded.fused : nullptr);
    return {};
  }

  /// The part of `place` for updates that keep something aside, or what is overwritten.
  status place_lands(lane_state<Executor>& lane) {
    admission& work = lane.load.work;
    vector<std::byte*>& aside = aside_;
    aside.assign(work.lands.size(), nullptr);
    const auto give_back = [&](std::int32_t layer) {  // no_index: all
      for (std::size_t i = 0; i < aside.size(); ++i) {
        if (aside[i] == nullptr || (layer != no_index && core_.records.layer_of(work.landed[i].landing) != layer)) continue;
        staging_.space().give_back(aside[i], staging_.bytes_for(work.lands[i], work.landed[i]));
        aside[i] = nullptr;
      }
    };
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      const std::int32_t landing = work.landed[i].landing;
      if (goes_live(landing)) continue;
      const std::int64_t bytes = staging_.bytes_for(work.lands[i], work.landed[i]);
      status failed = memory_.take(bytes, &aside[i]);
      if (failed.ok() && aside[i] != nullptr) continue;
      if (failed.ok() && mode_ == update_mode::layerwise && memory_.or_direct()) {
        give_back(core_.records.layer_of(landing));
        failed = go_direct(lane, core_.records.layer_of(landing));
        if (failed.ok()) continue;
      }
      give_back(no_index);
      core_.books.release(work.claims);
      return failed.ok() ? note(memory_.over_budget(source_of(landing), bytes)) : fail(failed);
    }
    if (undo_)
      for (const landed_part& what : work.landed)
        if (goes_live(what.landing))
          if (status failed = save_undo_of(what); !failed.ok()) {
            give_back(no_index);
            core_.books.release(work.claims);
            return fail(failed);
          }
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      touch(work.landed[i].landing);
      if (aside[i] != nullptr) {
        staging_.keep(work.lands[i], work.landed[i], aside[i]);
      } else {
        work.lands[i].destination += offset_;
        note_live_write();
      }
    }
    return {};
  }

  status enqueue(lane_state<Executor>& lane, event_ref ready) {
    if (ready.handle != nullptr)
      if (status failed = core_.run.wait_for(lane.lane, ready); !failed.ok()) return failed;
    if (lane.records) core_.run.keep(lane.lane, &lane.recorded.table);
    status failed = enqueue_load(lane);
    core_.run.keep(lane.lane, nullptr);
    return failed;
  }
  status enqueue_load(lane_state<Executor>& lane) {
    const admission& work = lane.load.work;
    if (!work.lands.empty())
      if (status failed = landed_digests_ ? landed_digests_->land(lane.lane, work.lands, work.landed, lane.digests)
                                          : core_.run.land(lane.lane, work.lands); !failed.ok())
        return failed;
    if (!work.pads.empty())
      if (status failed = core_.run.land(lane.lane, work.pads); !failed.ok()) return failed;
    if (status failed = post_load_.convert(lane.lane, lane.fused); !failed.ok()) return failed;
    if (!work.compares.empty()) {
      compared_ = true;
      if (status failed = core_.run.compare(lane.lane, work.compares, work.compared_groups); !failed.ok())
        return failed;
    }
    return {};
  }

  /// Under the lock: bytes that several names share are written and compared in one order over all lanes; so is what
  /// goes to memory that a committed layer has left.
  status enqueue_in_order(lane_state<Executor>& lane, event_ref ready) {
    if (status failed = follow_last(lane); !failed.ok()) return failed;
    if (status failed = enqueue(lane, ready); !failed.ok()) return failed;
    return mode_ == update_mode::layerwise ? commit_whole_layers(lane) : status{};
  }

  status follow_last(lane_state<Executor>& lane) {
    if (last_lane_ != nullptr && last_lane_ != &lane)
      if (status failed = core_.run.join(lane.lane, last_lane_->lane); !failed.ok()) return failed;
    last_lane_ = &lane;
    return {};
  }

  void keep_recorded(lane_state<Executor>& lane) {
    if (std::exchange(lane.records, false)) follower_.add(static_cast<planned_bucket<Executor>&&>(lane.recorded));
  }

  /// Ends a load; under the lock if it failed or is recorded.
  status end_load(lane_state<Executor>& lane, const status& enqueued) {
    status result;
    if (!enqueued.ok()) result = fail(enqueued);
    else keep_recorded(lane);
    lane.runs.store(false, std::memory_order_release);
    return result;
  }

  /// The lane goes on after everything that was loaded on the others.
  status join_lanes(lane_state<Executor>& lane) {
    for (auto& other : lanes_)
      if (&other != &lane)
        if (status failed = core_.run.join(lane.lane, other.lane); !failed.ok()) return fail(failed);
    return {};
  }

  /// Lands what layers have aside, then converts and computes what `post_load_` has collected.
  status land_and_combine(lane_state<Executor>& lane, std::span<const std::int32_t> layers,
                          vector<planned_step<Executor>>* steps = nullptr) {
    if (!post_load_.empty()) note_live_write();
    const auto land = [&](std::span<const land_job> jobs) {
      note_live_write();
      return core_.run.land(lane.lane, jobs);
    };
    const auto lands = [&](const staged_part& part) { return !post_load_.is_fused(part); };
    if (status failed = staging_.for_each_wave(layers, lands, land); !failed.ok()) return failed;
    return post_load_.enqueue(lane.lane, steps);
  }

  /// Whether a second name of FP8 bytes may still come: it is compared with them, so they are not converted before
  /// `commit`.
  bool waits_for_twins(std::int32_t id) const {
    if (core_.records.twin_groups.empty()) return false;
    const layer_record& layer = at(core_.records.layers, id);
    for (std::int32_t l = layer.first_landing; l < layer.first_landing + layer.landing_count; ++l) {
      const landing_record& landing = at(core_.records.landings, l);
      if (landing.twins != no_index && at(core_.records.params, landing.param).plan.spec.converts()) return true;
    }
    return false;
  }

  /// Layerwise, on an ordered lane: commits the layers that this load has made whole.
  status commit_whole_layers(lane_state<Executor>& lane) {
    std::int32_t checked = no_index;  // all of the load has arrived by now: once a layer will do
    for (const landed_part& what : lane.load.work.landed) {
      const std::int32_t id = core_.records.layer_of(what.landing);
      if (id == checked) continue;
      checked = id;
      const layer_record& layer = at(core_.records.layers, id);
      if (!staging_.holds(id) && !goes_live(what.landing)) continue;  // committed for an earlier piece of this load
      if (waits_for_twins(id)) continue;
      bool is_whole = true;
      core_.books.for_each_gap(layer.first_landing, layer.landing_count,
                               [&](std::int32_t, const rect&) { is_whole = false; });
      if (!is_whole) continue;
      post_load_.collect_aside(staging_.parts(id));
      post_load_.collect(layer);
      if (post_load_.empty() && !staging_.holds(id)) continue;
      if (status failed = save_undo({&id, 1}); !failed.ok()) return failed;
      if (status failed = land_and_combine(lane, {&id, 1}); !failed.ok()) return failed;
      staging_.release(id);
      overtakes_ = true;
    }
    return {};
  }

  /// A layer that finds no room: what it has aside lands now, and the rest where it belongs.
  status go_direct(lane_state<Executor>& lane, std::int32_t layer) {
    report_.direct_layers.push_back(at(core_.records.layers, layer).name);
    at(is_direct_, layer) = 1;
    for (const staged_part& part : staging_.parts(layer))
      if (status failed = save_undo_of(part.what); !failed.ok()) return failed;
    if (status failed = follow_last(lane); !failed.ok()) return failed;
    if (status failed = land_and_combine(lane, {&layer, 1}); !failed.ok()) return failed;
    staging_.release(layer);
    overtakes_ = true;
    return {};
  }

  status save_undo_of(const landed_part& what) {
    if (!undo_) return {};
    const landing_record& landing = at(core_.records.landings, what.landing);
    status failed = what.shared ? undo_->save_param(landing.param) : undo_->save_landing(what.landing);
    report_.undo_bytes = undo_->bytes();
    return failed;
  }

  /// Before a commit: saves what it overwrites.
  status save_undo(std::span<const std::int32_t> layers) {
    if (!undo_) return {};
    for (const std::int32_t layer : layers)
      for (const staged_part& part : staging_.parts(layer))
        if (status failed = save_undo_of(part.what); !failed.ok()) return failed;
    for (const computed_record* record : post_load_.computed())
      if (status failed = undo_->save_param(record->param); !failed.ok()) return failed;
    report_.undo_bytes = undo_->bytes();
    return {};
  }

  status grant(const piece& wanted, direct_landing* out) {
    admission trial;  // checked as a load of the same box, then given back
    if (status refused = intake_.try_out(wanted, trial); !refused.ok()) return refused;
    const land_job& job = trial.lands[0];
    const landed_part& what = trial.landed[0];
    if (overtakes_) {
      for (auto& lane : lanes_)
        if (status failed = core_.run.wait(lane.lane); !failed.ok()) return fail(failed);
      overtakes_ = false;
    }
    std::byte* memory = staging_.granted(what, job.from);
    if (memory == nullptr && staging_.overlaps_grant(what, job.from))
      return refuse(error_code::unsupported, wanted.name, "a box that was not granted in part", to_string(what.part));
    if (memory == nullptr && !goes_live(what.landing)) {
      const std::int64_t bytes = job.rows * job.cols * bytes_of(job.from);
      if (status failed = memory_.take(bytes, &memory); !failed.ok()) return fail(failed);
      if (memory != nullptr) {
        staging_.note_grant(what, job.from, memory, bytes);
      } else if (mode_ == update_mode::layerwise && memory_.or_direct()) {
        if (status failed = go_direct(main_lane(), core_.records.layer_of(what.landing)); !failed.ok()) return fail(failed);
      } else {
        return memory_.over_budget(source_of(what.landing), bytes);
      }
    }
    if (memory != nullptr) {
      *out = {memory, job.rows, job.cols, job.cols * bytes_of(job.from), job.to};
      return {};
    }
    *out = {job.destination + offset_, job.rows, job.cols, job.destination_row_stride_bytes, job.to};
    if (status failed = save_undo_of(what); !failed.ok()) return fail(failed);
    core_.books.note_written(trial.claims);
    note_live_write();
    if (mode_ == update_mode::swap) staging_.note_grant(what, job.from, nullptr, 0);
    return {};
  }

  status retract_landing(std::int32_t l) {
    status failed;
    const auto forget = [&](std::int32_t each) {
      staging_.forget(each);
      post_load_.forget(each);
      if (landed_digests_ && failed.ok()) failed = landed_digests_->forget(main_lane().lane, each);
    };
    const landing_record& record = at(core_.records.landings, l);
    const std::int32_t partner = record.scale != no_index ? record.scale : record.weight;
    const std::int32_t weight = record.scale != no_index ? l : record.weight;
    const bool is_converted = weight != no_index && post_load_.is_converted(weight);
    for (const std::int32_t each : {l, is_converted ? partner : no_index}) {
      if (each == no_index) continue;
      const std::int32_t twins = at(core_.records.landings, each).twins;
      if (twins == no_index) forget(each);
      else
        for (const std::int32_t twin : at(core_.records.twin_groups, twins)) forget(twin);
      core_.books.retract_landing(each);
    }
    return failed;
  }

  /// The update is like any other from here on. `in_bucket`: what comes next may be recorded.
  void leave_plan(bool in_bucket = false) {
    follower_.leave(post_load_, report_, is_touched_);
    if (!in_bucket) follower_.stop_recording();
  }

  /// All buckets of the plan have come: the scope is closed, as it was for the update that made the plan.
  status prepare_planned() {
    follower_.conclude(report_, is_touched_);
    return join_lanes(main_lane());
  }

  status prepare_loaded() {
    leave_plan(true);
    if (status refused = check_scope(core_, report_.missing); !refused.ok()) return refused;
    if (status failed = settle_compares(); !failed.ok()) return failed;
    if (compared_)
      if (status refused = check_twins(core_); !refused.ok()) return refused;
    if (status failed = join_lanes(main_lane()); !failed.ok()) return failed;
    if (landed_digests_)
      if (status refused = landed_digests_->check(main_lane().lane, digests_, report_); !refused.ok())
        return refused.code == error_code::corrupt ? refused : fail(refused);
    if (!digests_.empty() && !landed_digests_)
      if (status refused = check_digests(core_, main_lane().lane, staging_, digests_, report_); !refused.ok())
        return refused.code == error_code::corrupt ? refused : fail(refused);
    for (std::size_t i = 0; i < core_.records.layers.size(); ++i) {
      const auto layer = static_cast<std::int32_t>(i);
      if (is_touched_[i] == 0) continue;
      if (mode_ == update_mode::layerwise && !staging_.holds(layer) && !waits_for_twins(layer)) continue;  // committed
      due_layers_.push_back(layer);
      post_load_.collect_aside(staging_.parts(layer));
      post_load_.collect(at(core_.records.layers, layer));
    }
    report_.converted_rows = post_load_.converted_rows();
    report_.fused_rows = post_load_.fused_rows();
    if (status failed = save_undo(due_layers_); !failed.ok()) return fail(failed);
    return {};
  }

  /// Enqueues what is left to write, and what `settle` looks at.
  status enqueue_commit() {
    typename Executor::lane& lane = main_lane().lane;
    if (follower_.follows()) {
      if (!follower_.recorded_steps().empty()) note_live_write();
      return post_load_.replay(lane, follower_.recorded_steps());
    }
    status failed = land_and_combine(main_lane(), due_layers_, follower_.steps());
    if (failed.ok()) failed = compare_shards(core_, lane, offset_);
    core_.run.keep(lane, nullptr);
    return failed;
  }

  /// Waits for comparisons that were enqueued.
  status settle_compares() {
    if (!compared_) return {};
    for (auto& lane : lanes_)
      if (status failed = core_.run.wait(lane.lane); !failed.ok()) return fail(failed);
    return {};
  }

  status settle_locked() {
    if (!failed_.ok()) return failed_;
    if (!open_ || !committed_)
      return refuse(error_code::wrong_state, {}, "a committed update", open_ ? "one that is not" : "a closed one");
    if (settled_) return {};
    if (status failed = core_.run.wait(main_lane().lane); !failed.ok()) return fail(failed);
    if (status failed = note_changes(); !failed.ok()) return fail(failed);
    if (status failed = warn_unequal_shards(core_, main_lane().lane, report_.warnings); !failed.ok())
      return fail(failed);
    settled_ = true;
    return {};
  }

  status note_changes() {
    if (!detect_changes_) return {};
    std::uint64_t now = 0;
    if (status failed = digest_model(core_.run, main_lane().lane, core_.records, &now); !failed.ok()) return failed;
    if (core_.has_digest) report_.changed = now != core_.last_digest;
    digest_ = now;
    return {};
  }

  /// Swap: the pages change places once nothing uses them. The generation before stays behind the spare addresses.
  status exchange() {
    if (status failed = core_.run.hold(readers_); !failed.ok()) return failed;
    if (status failed = core_.run.combine(main_lane().lane, {}); !failed.ok()) return failed;  // behind the readers
    if (status failed = core_.run.wait(main_lane().lane); !failed.ok()) return failed;
    pause_began_ = seconds_now();
    previous_ = core_.current();
    core_.state = model_state::updating;
    bool torn = false;
    const status failed = core_.pages->exchange(&torn);
    exchanged_ = failed.ok();
    report_.pages_exchanged = exchanged_;
    lost_ = torn;
    wrote_live_ = exchanged_ || torn;
    if (!failed.ok() && !torn) core_.state = before_;
    return failed;
  }

  /// Puts live bytes back; `unsupported` where nothing was kept for that. Requires: no write can still happen.
  status undo() {
    if (undecided_) return refuse(error_code::unsupported, {}, "a decision", "a handle that went away in doubt");
    if (exchanged_) {
      exchanged_ = false;
      return core_.pages->exchange(&lost_);
    }
    if (undo_) return undo_->restore();
    return refuse(error_code::unsupported, {}, "an undo image", "none");
  }

  void close(ending how) {
    const bool succeeded = how == ending::published;
    if (succeeded) report_.not_sent = follower_.follows() ? follower_.not_sent() : count_not_sent(core_);
    core_.aliases.set(report_);
    report_.launches = core_.run.launches() - launches_;
    report_.staged_bytes = staging_.space().peak();
    report_.peak_extra_device_bytes = core_.run.allocated_bytes() - core_.sealed_bytes;
    if (succeeded && mode_ == update_mode::swap) core_.previous = previous_;
    if (succeeded || how == ending::torn) core_.books.settle(succeeded);
    if (succeeded) core_.has_digest = detect_changes_;
    if (succeeded) core_.last_digest = digest_;
    core_.books.clear();
    if (!succeeded)
      follower_.drop();
    else if (!follower_.follows())
      follower_.seal(report_, is_touched_);
    memory_.release(!can_still_run_);
    core_.state = succeeded                                     ? model_state::live
                  : how == ending::torn && undecided_           ? model_state::in_doubt
                  : how == ending::torn                         ? model_state::undefined
                                                                : before_;
    if (lost_) core_.lose_pages();
    open_ = false;
    core_.update_open = false;
  }

  core_type& core_;
  intake<Executor> intake_;
  update_mode mode_;
  vector<stream_ref> readers_;
  bool detect_changes_;
  bool writes_over_;       ///< every load goes to live storage (swap: to spare pages), and nothing is saved before
  std::ptrdiff_t offset_;  ///< from live addresses to those that are written (swap)
  post_load<Executor> post_load_;
  staging staging_;
  aside_memory<Executor> memory_;
  plan_follower<Executor> follower_;
  std::optional<undo_image<Executor>> undo_ = {};
  generation previous_ = {};                                ///< swap: of the pages that commit puts aside
  digest_list digests_ = {};                                ///< the sender's
  std::optional<landed_digests<Executor>> landed_digests_ = {};
  std::list<lane_state<Executor>> lanes_ = {};              ///< the first is the update's own
  lane_state<Executor>* last_lane_ = nullptr;               ///< of work that has one order over all lanes
  vector<std::uint8_t> is_direct_ = {};                ///< per layer: loads go to live storage
  vector<std::uint8_t> is_touched_ = {};               ///< per layer: something of it has arrived
  vector<std::int32_t> due_layers_ = {};               ///< that `commit` writes
  vector<std::byte*> aside_ = {};                      ///< of the load that is being placed
  report report_ = {};
  status failed_ = {};            ///< sticky
  model_state before_ = model_state::undefined;
  double started_ = 0;
  double pause_began_ = 0;        ///< 0: no live write yet
  std::int64_t launches_ = 0;
  std::uint64_t digest_ = 0;
  light_lock ending_ = {};             ///< around the end: either a publish or an abort; taken inside the model's lock
  std::atomic<bool> open_ = true;
  std::atomic<bool> closing_ = false;
  bool prepared_ = false;
  bool committed_ = false;
  bool settled_ = false;
  bool exchanged_ = false;
  bool can_still_run_ = false;    ///< a cancelled landing that could not be waited for
  bool lost_ = false;             ///< an exchange failed half way: no page is left
  bool overtakes_ = false;        ///< queued work may still write where `landing` could let a transport write
  bool undecided_ = false;
  bool wrote_live_ = false;
  bool compared_ = false;
};

}  // namespace detail
}  // namespace wreload
