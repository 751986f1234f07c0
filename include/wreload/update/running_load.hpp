#pragma once
/// `running_load`: the part of a load that is past its checks, and what becomes of the update if an exception ends it.

#include <atomic>

#include "update_core.hpp"

namespace wreload::detail {

/// From `begin` on the load may have claimed what it has not landed, so the update must neither be prepared nor closed
/// (`lane_state::runs`). It ends with this scope: by a return, or by an exception (host memory is spent), which goes on
/// to the caller and has failed the update.
template <executor Executor>
class running_load {
 public:
  running_load(update_core<Executor>& update, lane_state<Executor>& lane) : update_(update), lane_(lane) {}
  running_load(const running_load&) = delete;             // a scope
  running_load& operator=(const running_load&) = delete;
  ~running_load() {
    if (!has_begun_) return;
    if (!has_returned_) {
      const lock_scope guard(update_.model.lock);
      update_.phase.fail_thrown();
    }
    lane_.runs.store(false, std::memory_order_release);
  }

  /// The load; outside the lock.
  template <class Call>
  status call(Call&& load) {
    status result = load();
    has_returned_ = true;
    return result;
  }
  /// It is past its checks. Under the lock.
  void begin() {
    has_begun_ = true;
    lane_.runs.store(true, std::memory_order_relaxed);
  }

 private:
  update_core<Executor>& update_;
  lane_state<Executor>& lane_;
  bool has_begun_ = false;
  bool has_returned_ = false;
};

}  // namespace wreload::detail
