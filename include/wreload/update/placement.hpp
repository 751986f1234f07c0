#pragma once
/// `placement`: decides where the bytes of an accepted load go, and points its jobs there.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/on_use.hpp"
#include "layer_commits.hpp"
#include "update_core.hpp"

namespace wreload::detail {

/// Each landing of a load goes to live storage or aside, as its layer does (see `live_writes`); pads and comparisons go
/// where the bytes are that they are about. Where the update is to be undone, what goes live is saved first: that of
/// the load here, what a layer had aside before it found no room by `layer_commits::go_direct`.
template <executor Executor>
class placement {
  using admission = dependent<wreload::admission, Executor>;

 public:
  placement(update_core<Executor>& update, layer_commits<Executor>& commits)
      : update_(update), commits_(commits), writes_over_(lands_at_once(update.mode) && !update.undo.has_image()) {}

  /// Rewrites the jobs of a lane's load. On a refusal or a failure its claims and its room are given back; a layer that
  /// went direct for it stays so.
  status place(lane_state<Executor>& lane) {
    admission& work = lane.load.work;
    if (writes_over_) {
      for (std::size_t i = 0; i < work.lands.size(); ++i) {
        update_.live.touch(work.landed[i].landing);
        work.lands[i].destination += update_.live.offset();
      }
      if (!work.lands.empty()) update_.live.note();
    } else if (status refused = place_lands(lane); !refused.ok()) {
      update_.model.books.release(work.claims);
      return refused;
    }
    const auto is_live = [this](std::int32_t landing) { return update_.live.takes(landing); };
    for (const landed_part& what : work.compared) update_.live.touch(what.landing);
    if (!work.pads.empty()) update_.staging.place_pads(work, is_live, update_.live.offset());
    if (!work.compares.empty()) update_.staging.place_compares(work, is_live, update_.live.offset());
    return {};
  }

 private:
  /// For updates that keep something aside, or what is overwritten.
  status place_lands(lane_state<Executor>& lane) {
    admission& work = lane.load.work;
    aside_.assign(work.lands.size(), nullptr);
    if (status refused = take_room(lane); !refused.ok()) return refused;
    if (status failed = save_overwritten(work); !failed.ok()) {
      give_back(work);
      return update_.phase.fail(failed);
    }
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      update_.live.touch(work.landed[i].landing);
      if (aside_[i] != nullptr) {
        update_.staging.keep(work.lands[i], work.landed[i], aside_[i]);
      } else {
        work.lands[i].destination += update_.live.offset();
        update_.live.note();
      }
    }
    return {};
  }

  /// Takes room for what goes aside. A layer that finds none goes live, where that is allowed.
  status take_room(lane_state<Executor>& lane) {
    const admission& work = lane.load.work;
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      const std::int32_t landing = work.landed[i].landing;
      if (update_.live.takes(landing)) continue;
      const std::int64_t bytes = update_.staging.bytes_for(work.lands[i], work.landed[i]);
      status failed = update_.memory.take(bytes, &aside_[i]);
      if (failed.ok() && aside_[i] != nullptr) continue;
      if (failed.ok() && update_.mode == update_mode::layerwise && update_.memory.or_direct()) {
        const std::int32_t layer = update_.model.records.layer_of(landing);
        give_back(work, layer);
        failed = commits_.go_direct(lane, layer);
        if (failed.ok()) continue;
      }
      give_back(work);
      if (!failed.ok()) return update_.phase.fail(failed);
      return update_.phase.note(update_.memory.over_budget(update_.model.records.source_of(landing), bytes));
    }
    return {};
  }

  /// The room that a load has taken, for one layer or (no_index) for all.
  void give_back(const admission& work, std::int32_t layer = no_index) {
    for (std::size_t i = 0; i < aside_.size(); ++i) {
      if (aside_[i] == nullptr) continue;
      if (layer != no_index && update_.model.records.layer_of(work.landed[i].landing) != layer) continue;
      update_.staging.space().give_back(aside_[i], update_.staging.bytes_for(work.lands[i], work.landed[i]));
      aside_[i] = nullptr;
    }
  }

  status save_overwritten(const admission& work) {
    if (!update_.undo.has_image()) return {};
    for (const landed_part& what : work.landed)
      if (update_.live.takes(what.landing))
        if (status failed = update_.undo.save(what); !failed.ok()) return failed;
    return {};
  }

  update_core<Executor>& update_;
  layer_commits<Executor>& commits_;
  bool writes_over_;  ///< all goes to live storage (swap: to spare pages), and nothing is saved before
  dependent<std::vector<std::byte*>, Executor> aside_ = {};  ///< of the load that is being placed: room, or null
};

}  // namespace wreload::detail
