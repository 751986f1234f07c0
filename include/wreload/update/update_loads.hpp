#pragma once
/// `update_loads`: the way of pieces and buckets into an open update, from the call to the enqueued work.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "../core/on_use.hpp"
#include "bucket.hpp"
#include "intake.hpp"
#include "layer_commits.hpp"
#include "placement.hpp"
#include "running_load.hpp"
#include "update_core.hpp"

namespace wreload::detail {

/// A load is checked, claimed and placed under the model's lock; it is enqueued outside it, unless its place in the
/// order of all lanes matters.
template <executor Executor>
class update_loads {
  using admission = dependent<wreload::admission, Executor>;

 public:
  update_loads(update_core<Executor>& update, layer_commits<Executor>& commits)
      : update_(update), model_(update.model), commits_(commits), intake_(update.model), placement_(update, commits) {}

  /// Loads a bucket: as the plan has it, or its pieces.
  status load(lane_state<Executor>& lane, const bucket& from, event_ref ready) {
    running_load<Executor> running(update_, lane);
    return running.call([&] { return load_bucket(running, lane, from, ready); });
  }
  /// Loads pieces, all or none of them.
  status load(lane_state<Executor>& lane, std::span<const piece> pieces, event_ref ready) {
    running_load<Executor> running(update_, lane);
    return running.call([&] { return load_pieces(running, lane, pieces, ready, nullptr, 0); });
  }

 private:
  status load_bucket(running_load<Executor>& running, lane_state<Executor>& lane, const bucket& from,
                     event_ref ready) {
    const std::uint64_t manifest = from.manifest != 0 ? from.manifest : manifest_of(from);
    const planned_bucket<Executor>* known = nullptr;
    {
      const lock_scope guard(model_.lock);
      if (status refused = update_.phase.check_loading(); !refused.ok()) return refused;
      known = update_.follower.follow(from, manifest, ready);
      if (known != nullptr) {
        running.begin();
        known->tally.add_to(update_.report);
        ++update_.report.replayed_buckets;
        if (known->table.empty()) return {};
        if (known->writes) update_.live.note();
        if (known->shares_bytes) {
          const status failed = update_.lanes.follow_last(lane);
          return end(lane, failed.ok() ? update_.follower.replay(lane.lane, *known, from, ready) : failed);
        }
      }
    }
    if (known == nullptr) {
      const status refused = point_into(from, lane.pieces);
      if (refused.ok()) return load_pieces(running, lane, lane.pieces, ready, &from, manifest);
      const lock_scope guard(model_.lock);
      return update_.phase.note(refused);
    }
    const status enqueued = update_.follower.replay(lane.lane, *known, from, ready);
    if (enqueued.ok()) return end(lane, {});
    const lock_scope guard(model_.lock);
    return end(lane, enqueued);
  }

  /// `from`: the bucket that the pieces are, or null.
  status load_pieces(running_load<Executor>& running, lane_state<Executor>& lane, std::span<const piece> pieces,
                     event_ref ready, const bucket* from, std::uint64_t manifest) {
    for (const piece& part : pieces)  // the host reads those at once, the event orders only the device
      if (ready.handle != nullptr && part.tensor.memory == memory_kind::pageable)
        return refuse(error_code::bad_argument, part.name, "device or pinned memory behind a ready event",
                      "a tensor marked pageable");
    {
      const lock_scope guard(model_.lock);
      if (status refused = update_.phase.check_loading(); !refused.ok()) return refused;
      running.begin();
      update_.leave_plan(from != nullptr);
      if (status refused = intake_.take(pieces, lane.load); !refused.ok()) return update_.phase.note(refused);
      lane.records = update_.follower.records();
      if (lane.records) lane.recorded = {};
      if (status refused = placement_.place(lane); !refused.ok()) return refused;
      const admission& work = lane.load.work;
      if (update_.landed) update_.landed->note(work.landed);
      else fuse(lane);
      if (lane.records) {
        update_.follower.begin(lane.recorded, *from, manifest, lane.load, intake_.shares_bytes(work));
        lane.records = update_.follower.records();
      }
      for (const counted_piece& part : lane.load.counted) count(part, update_.report);
      model_.books.note_written(work.claims);
      if (work.lands.empty() && work.compares.empty() && lane.fused.empty()) {
        keep_recorded(lane);
        return {};
      }
      const bool in_order =
          update_.mode == update_mode::layerwise || !work.compares.empty() || intake_.shares_bytes(work);
      if (in_order) return end(lane, enqueue_in_order(lane, ready));
    }
    const status enqueued = enqueue(lane, ready);
    if (enqueued.ok() && !lane.records) return end(lane, {});
    const lock_scope guard(model_.lock);
    return end(lane, enqueued);
  }

  /// What lands at once is converted on its way, where that can be.
  void fuse(lane_state<Executor>& lane) {
    if (model_.keys.empty() || !lands_at_once(update_.mode)) return;
    update_.post_load.fuse_load(lane.load.work, lane.fused, update_.lanes.are_several() || lane.records,
                                lane.records ? &lane.recorded.fused : nullptr);
  }

  status enqueue(lane_state<Executor>& lane, event_ref ready) {
    if (ready.handle != nullptr)
      if (status failed = model_.run.wait_for(lane.lane, ready); !failed.ok()) return failed;
    if (lane.records) model_.run.keep(lane.lane, &lane.recorded.table);
    status failed = enqueue_jobs(lane);
    model_.run.keep(lane.lane, nullptr);
    return failed;
  }
  status enqueue_jobs(lane_state<Executor>& lane) {
    const admission& work = lane.load.work;
    if (!work.lands.empty())
      if (status failed = update_.landed ? update_.landed->land(lane.lane, work.lands, work.landed, lane.digests)
                                         : model_.run.land(lane.lane, work.lands); !failed.ok())
        return failed;
    if (!work.pads.empty())
      if (status failed = model_.run.land(lane.lane, work.pads); !failed.ok()) return failed;
    if (status failed = update_.post_load.convert(lane.lane, lane.fused); !failed.ok()) return failed;
    if (!work.compares.empty()) {
      update_.compared = true;
      if (status failed = model_.run.compare(lane.lane, work.compares, work.compared_groups); !failed.ok())
        return failed;
    }
    return {};
  }

  /// Under the lock: bytes that several names share are written and compared in one order over all lanes; so is what
  /// goes to memory that a committed layer has left.
  status enqueue_in_order(lane_state<Executor>& lane, event_ref ready) {
    if (status failed = update_.lanes.follow_last(lane); !failed.ok()) return failed;
    if (status failed = enqueue(lane, ready); !failed.ok()) return failed;
    return update_.mode == update_mode::layerwise ? commits_.commit_whole(lane, lane.load.work.landed) : status{};
  }

  void keep_recorded(lane_state<Executor>& lane) {
    if (std::exchange(lane.records, false))
      update_.follower.add(static_cast<planned_bucket<Executor>&&>(lane.recorded));
  }

  /// What follows an enqueued load. Requires: the lock, if it failed or is recorded.
  status end(lane_state<Executor>& lane, const status& enqueued) {
    if (!enqueued.ok()) return update_.phase.fail(enqueued);
    keep_recorded(lane);
    return {};
  }

  update_core<Executor>& update_;
  model_core<Executor>& model_;
  layer_commits<Executor>& commits_;
  intake<Executor> intake_;
  placement<Executor> placement_;
};

}  // namespace wreload::detail
