#pragma once
/// `session`: an open update, behind the handle and its lanes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "../core/on_use.hpp"
#include "checks.hpp"
#include "digest.hpp"
#include "in_place.hpp"
#include "layer_commits.hpp"
#include "options.hpp"
#include "page_swap.hpp"
#include "preparation.hpp"
#include "retraction.hpp"
#include "update_core.hpp"
#include "update_loads.hpp"

namespace wreload {

namespace detail {

/// From `open`, which comes first, through loads to its end: published; or aborted, and undone where that can be.
template <executor Executor>
class session {
 public:
  using core_type = model_core<Executor>;

  session(core_type& core, const start_options& options)
      : core_(core), update_(core, options), commits_(update_), loads_(update_, commits_), in_place_(update_, commits_),
        retraction_(update_), swap_(update_), readers_(options.readers.begin(), options.readers.end()),
        detect_changes_(options.detect_changes), before_(core.state.load()) {
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
    if (update_.landed) {
      if (status failed = update_.landed->open(&update_.memory.own()); !failed.ok()) return failed;
    }
    if (update_.mode == update_mode::direct || update_.mode == update_mode::layerwise)
      core_.state = model_state::updating;
    if (update_.mode == update_mode::swap) return swap_.open();
    return update_.mode == update_mode::direct ? status{} : update_.memory.open();
  }

  lane_state<Executor>& main_lane() { return update_.lanes.main(); }
  lane_state<Executor>* add_lane(stream_ref stream) {
    const lock_scope guard(core_.lock);
    lane_state<Executor>& added = update_.lanes.add(stream);
    if (update_.mode != update_mode::swap) return &added;
    const status failed = core_.run.join(added.lane, main_lane().lane);  // behind the copy of what is not sent
    if (!failed.ok()) (void)update_.phase.fail(failed);
    return &added;
  }
  event_ref flush(lane_state<Executor>& lane) { return core_.run.record(lane.lane); }

  update_loads<Executor>& loads() { return loads_; }

  status landing(const piece& wanted, direct_landing* out) {
    return take([&] { return update_.phase.note(in_place_.grant(wanted, out)); });
  }
  status adopt(std::span<const std::string_view> names, load_form form) {
    return take([&] { return in_place_.adopt(names, form); });
  }
  status retract(std::string_view name) {
    return take([&] { return retraction_.retract(name); });
  }

  status prepare() {
    const lock_scope guard(core_.lock);
    if (status refused = update_.phase.check_loading(); !refused.ok()) return refused;
    if (status refused = update_.lanes.check_idle(); !refused.ok()) return refused;
    const double began = seconds_now();
    update_.report.seconds.load = began - started_;
    status refused = update_.phase.attempt([&] { return preparation<Executor>(update_, commits_).prepare(); });
    if (!refused.ok()) return refused;
    update_.phase.note_prepared();
    update_.report.seconds.prepare = seconds_now() - began;
    return {};
  }

  status commit(event_ref* done) {
    const lock_scope guard(core_.lock);
    if (status refused = update_.phase.check_prepared(); !refused.ok()) return refused;
    return update_.phase.attempt([&] { return commit_locked(done); });
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
    if (update_.phase.is_closing())
      return update_.phase.fail(refuse(error_code::aborted, {}, "an open update", "one that has ended"));
    update_.phase.close();
    update_.report.seconds.publish = seconds_now() - began;
    update_.report.pause_seconds = update_.live.pause_until(seconds_now());
    core_.version = ++core_.latest_version;
    update_.report.version = core_.version;
    for (std::size_t i = 0; i < update_.live.touched().size(); ++i)
      if (update_.live.touched()[i] != 0) core_.layer_versions[i] = core_.version;
    close(ending::published);
    return {};
  }

  /// The outcome elsewhere is not known: the model must not serve until `publish` or `abort` decides.
  status doubt() {
    const lock_scope guard(core_.lock);
    if (status refused = update_.phase.check_committed(); !refused.ok()) return refused;
    core_.state = model_state::in_doubt;
    return {};
  }

  status abort() {
    {
      // Not the model's lock: a call that waits for the device holds that, and may wait for this cancel.
      const lock_scope guard(ending_);
      if (!update_.phase.is_open()) return {};
      if (!update_.phase.is_closing()) {  // one cancel: a second thread's would end the undo of the first, too
        update_.phase.begin_closing();
        cancelled_ = core_.run.cancel();
      }
    }
    update_.lanes.wait_for_loads();
    const lock_scope guard(core_.lock);
    if (!update_.phase.is_open()) return cancelled_;  // a publish was faster, or another abort
    update_.follower.give_up();
    if (!update_.live.any()) {
      close(ending::unwritten);
      return cancelled_;
    }
    const status undone = cancelled_.ok() ? undo() : cancelled_;
    close(undone.ok() ? ending::undone : ending::torn);
    return undone.code == error_code::unsupported ? status{} : undone;
  }

  bool is_open() const { return update_.phase.is_open(); }
  bool is_prepared() const { return update_.phase.is_prepared(); }
  bool is_committed() const { return update_.phase.is_committed(); }
  const report& last_report() const { return update_.report; }
  status append_landed_digests(digest_list& list) const {
    if (!update_.landed || !is_prepared())
      return refuse(error_code::wrong_state, {}, "a prepared update that was asked for digests",
                    is_prepared() ? "one that was not" : "one that is not prepared");
    update_.landed->append(list);
    return {};
  }

 private:
  enum class ending : std::uint8_t { published, unwritten, undone, torn };

  /// A call about tensors that is no load: what it takes is no part of a plan.
  template <class Call>
  status take(Call&& call) {
    const lock_scope guard(core_.lock);
    if (status refused = update_.phase.check_loading(); !refused.ok()) return refused;
    return update_.phase.attempt([&] {
      update_.leave_plan();
      return call();
    });
  }

  status commit_locked(event_ref* done) {
    const double began = seconds_now();
    if (update_.mode == update_mode::staged) {
      if (status failed = core_.run.hold(readers_); !failed.ok()) return update_.phase.fail(failed);
      update_.live.begin_pause(began);
    }
    if (status failed = enqueue_commit(); !failed.ok()) return update_.phase.fail(failed);
    if (update_.mode == update_mode::swap)
      if (status failed = swap_.exchange(readers_); !failed.ok()) return update_.phase.fail(failed);
    update_.phase.note_committed();
    if (done != nullptr) *done = core_.run.record(main_lane().lane);
    update_.report.seconds.commit = seconds_now() - began;
    return {};
  }

  /// Enqueues what is left to write, and what `settle` looks at.
  status enqueue_commit() {
    typename Executor::lane& lane = main_lane().lane;
    if (update_.follower.follows()) {
      if (!update_.follower.recorded_steps().empty()) update_.live.note();
      return update_.post_load.replay(lane, update_.follower.recorded_steps());
    }
    status failed = commits_.commit_rest(update_.follower.steps());
    if (failed.ok()) failed = compare_shards(core_, lane, update_.live.offset());
    core_.run.keep(lane, nullptr);
    return failed;
  }

  status settle_locked() {
    if (!update_.phase.failure().ok()) return update_.phase.failure();
    if (status refused = update_.phase.check_committed(); !refused.ok()) return refused;
    if (update_.phase.is_settled()) return {};
    return update_.phase.attempt([&] {
      status failed = core_.run.wait(main_lane().lane);
      if (failed.ok()) failed = note_changes();
      if (failed.ok()) failed = warn_unequal_shards(core_, main_lane().lane, update_.report.warnings);
      if (!failed.ok()) return update_.phase.fail(failed);
      update_.follower.note_layers(update_.live.touched());
      update_.phase.note_settled();
      return status{};
    });
  }

  status note_changes() {
    if (!detect_changes_) return {};
    std::uint64_t now = 0;
    if (status failed = digest_model(core_.run, main_lane().lane, core_.records, &now); !failed.ok()) return failed;
    if (core_.has_digest) update_.report.changed = now != core_.last_digest;
    digest_ = now;
    return {};
  }

  /// Puts live bytes back; `unsupported` where nothing was kept for that, or a handle went away in doubt. Takes nothing
  /// from the heap itself. Requires: no write can still happen.
  status undo() {
    if (undecided_) return {.code = error_code::unsupported};
    if (swap_.has_exchanged()) return swap_.exchange_back();
    if (update_.undo.has_image()) return update_.undo.restore();
    return {.code = error_code::unsupported};
  }

  void close(ending how) {
    const bool succeeded = how == ending::published;
    report& told = update_.report;
    if (succeeded)
      told.not_sent = update_.follower.follows() ? update_.follower.not_sent() : count_not_sent(core_);
    core_.aliases.set(told);
    told.launches = core_.run.launches() - launches_;
    told.staged_bytes = update_.staging.space().peak();
    told.peak_extra_device_bytes = core_.run.allocated_bytes() - core_.sealed_bytes;
    if (succeeded && update_.mode == update_mode::swap) swap_.keep_replaced();
    if (succeeded || how == ending::torn) core_.books.settle(succeeded);
    if (succeeded) core_.has_digest = detect_changes_;
    if (succeeded) core_.last_digest = digest_;
    core_.books.clear();
    if (!succeeded)
      update_.follower.drop();
    else if (!update_.follower.follows())
      update_.follower.seal(told);
    update_.memory.release(cancelled_.ok());
    core_.state = succeeded                                     ? model_state::live
                  : how == ending::torn && undecided_           ? model_state::in_doubt
                  : how == ending::torn                         ? model_state::undefined
                                                                : before_;
    if (swap_.is_lost()) core_.lose_pages();
    update_.phase.close();
    core_.update_open = false;
  }

  core_type& core_;
  update_core<Executor> update_;
  layer_commits<Executor> commits_;
  update_loads<Executor> loads_;
  in_place<Executor> in_place_;
  retraction<Executor> retraction_;
  page_swap<Executor> swap_;
  dependent<std::vector<stream_ref>, Executor> readers_;
  bool detect_changes_;
  model_state before_;
  double started_ = 0;
  std::int64_t launches_ = 0;
  std::uint64_t digest_ = 0;
  light_lock ending_ = {};        ///< around the end: either a publish or an abort; taken inside the model's lock
  status cancelled_ = {};         ///< how `abort` ended what was queued; an error: a landing may still run
  bool undecided_ = false;
};

}  // namespace detail
}  // namespace wreload
