#pragma once
/// `update_lanes`: the lanes of an open update, and the orders between them.

#include <atomic>
#include <list>
#include <string_view>
#include <vector>

#include "../core/on_use.hpp"
#include "intake.hpp"
#include "model_core.hpp"
#include "options.hpp"
#include "plan.hpp"
#include "post_load.hpp"

namespace wreload::detail {

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

/// What one lane enqueues runs beside what the others do, but for the orders that are asked for here. A lane stays
/// where it is. Under the model's lock, but for `wait_for_loads`.
template <executor Executor>
class update_lanes {
 public:
  using lane_type = lane_state<Executor>;

  /// With the update's own lane, on this stream.
  update_lanes(model_core<Executor>& core, stream_ref stream) : core_(core) { (void)add(stream); }

  lane_type& main() { return lanes_.front(); }
  lane_type& add(stream_ref stream) { return lanes_.emplace_back(core_.run.open(stream)); }
  bool are_several() const { return lanes_.size() > 1; }

  /// Refuses, by a name, while a load is past its checks.
  status check_idle(std::string_view name = {}) const {
    if (!any_runs()) return {};
    return refuse(error_code::wrong_state, name, "no load running on another lane", "one that runs");
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

  /// The lane goes on after everything that was loaded on the others.
  status join(lane_type& lane) {
    for (auto& other : lanes_)
      if (&other != &lane)
        if (status failed = core_.run.join(lane.lane, other.lane); !failed.ok()) return failed;
    return {};
  }
  status join_each() {
    for (auto& lane : lanes_)
      if (status failed = join(lane); !failed.ok()) return failed;
    return {};
  }

  /// For work that has one order over all lanes: the lane goes on after the lane that asked last.
  status follow_last(lane_type& lane) {
    if (last_ != nullptr && last_ != &lane)
      if (status failed = core_.run.join(lane.lane, last_->lane); !failed.ok()) return failed;
    last_ = &lane;
    return {};
  }

  /// Waits for everything that was enqueued.
  status wait() {
    for (auto& lane : lanes_)
      if (status failed = core_.run.wait(lane.lane); !failed.ok()) return failed;
    return {};
  }

  /// Queued work may from here on write where `landing` could let a transport write, which no stream orders.
  void note_overtaking() { overtakes_ = true; }
  /// Waits where that is so.
  status wait_if_overtaking() {
    if (!overtakes_) return {};
    if (status failed = wait(); !failed.ok()) return failed;
    overtakes_ = false;
    return {};
  }

 private:
  bool any_runs() const {
    for (const auto& lane : lanes_)
      if (lane.runs.load(std::memory_order_acquire)) return true;
    return false;
  }

  model_core<Executor>& core_;
  std::list<lane_type> lanes_ = {};  ///< the first is the update's own
  lane_type* last_ = nullptr;
  bool overtakes_ = false;
};

}  // namespace wreload::detail
