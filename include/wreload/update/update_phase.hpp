#pragma once
/// `update_phase`: how far an update has got, from its first load to its end; its first refusal and its failure.

#include <atomic>

#include "../core/status.hpp"
#include "live_writes.hpp"
#include "report.hpp"

namespace wreload::detail {

/// It takes loads; then it is prepared, committed, settled; at any time it may be closing, and in the end it is closed.
/// A failure is final: what would go on returns it. Under the model's lock, but for `begin_closing` (see
/// `session::abort`) and what any thread may ask: `is_open`, `is_closing`, `is_prepared`, `is_committed`.
template <executor Executor>
class update_phase {
 public:
  update_phase(const live_writes<Executor>& live, report& told) : live_(live), told_(told) {}

  bool is_open() const { return open_; }
  bool is_closing() const { return closing_; }
  bool is_prepared() const { return prepared_; }
  bool is_committed() const { return committed_; }
  bool is_settled() const { return settled_; }
  void note_prepared() { prepared_ = true; }
  void note_committed() { committed_ = true; }
  void note_settled() { settled_ = true; }
  void begin_closing() { closing_ = true; }
  void close() { open_ = false; }

  /// Whether tensors may come.
  status check_loading() const {
    if (!failed_.ok()) return failed_;
    if (closing_ || !open_) return refuse(error_code::aborted, {}, "an open update", "one that has ended");
    if (prepared_) return refuse(error_code::wrong_state, {}, "an update that takes loads", "a prepared one");
    return {};
  }
  /// Whether it may be committed.
  status check_prepared() const {
    if (!failed_.ok()) return failed_;
    if (open_ && prepared_ && !committed_) return {};
    return refuse(error_code::wrong_state, {}, "a prepared update", open_ ? "one that is not" : "a closed one");
  }
  /// Whether a commit was enqueued, whatever became of it (see `failure`).
  status check_committed() const {
    if (open_ && committed_) return {};
    return refuse(error_code::wrong_state, {}, "a committed update", open_ ? "one that is not" : "a closed one");
  }

  const status& failure() const { return failed_; }
  /// Keeps the first failure, and returns it.
  status fail(const status& failure) {
    if (failed_.ok()) {
      failed_ = failure;
      failed_.wrote_anything = live_.any();
    }
    return failed_;
  }
  /// The same where the result is not a success.
  status fail_unless_ok(const status& result) { return result.ok() ? result : fail(result); }
  /// An exception has ended a call (host memory is spent): what that has entered may never land. Takes nothing from the
  /// heap.
  void fail_thrown() {
    if (failed_.ok()) failed_ = static_cast<status&&>(thrown_);
    failed_.wrote_anything = live_.any();
  }
  /// Calls. An exception that leaves the call goes on to the caller, and the update has failed.
  template <class Call>
  status attempt(Call&& call) {
    struct watch {
      update_phase& phase;
      bool has_returned = false;
      ~watch() {
        if (!has_returned) phase.fail_thrown();
      }
    } watched{*this};
    status result = call();
    watched.has_returned = true;
    return result;
  }

  /// Keeps the first refusal of a call that takes tensors, and returns the result.
  status note(const status& result) {
    if (!result.ok() && told_.first_error.ok()) told_.first_error = result;
    return result;
  }

 private:
  const live_writes<Executor>& live_;
  report& told_;
  status failed_ = {};  ///< sticky
  /// Made while there is memory for it.
  status thrown_ = refuse(error_code::out_of_memory, {}, "host memory", "an exception");
  std::atomic<bool> open_ = true;
  std::atomic<bool> closing_ = false;
  std::atomic<bool> prepared_ = false;
  std::atomic<bool> committed_ = false;
  bool settled_ = false;
};

}  // namespace wreload::detail
