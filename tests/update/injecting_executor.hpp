#pragma once
/// An executor, its arena and launchers of which any one operation fails when a test says so, having done nothing: every
/// call that returns a status counts, in the order in which the library makes them.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <wreload/executor/executor.hpp>

#include "../memory.hpp"
#include "../sparsity.hpp"

namespace wreload::test {

/// Which operation fails. One thread at a time.
class fault_plan {
 public:
  /// The operation after `operations` more fails; where it `lasts`, all that follow as well (a device that is gone).
  void arm(std::int64_t operations, bool lasts = false) {
    left_ = operations;
    lasts_ = lasts;
    only_.clear();
    hit_.clear();
    of_this_thread() = this;
  }
  /// The next one of this name fails.
  void arm_next(std::string_view operation) {
    arm(0);
    only_ = operation;
  }
  /// From here on nothing fails. Says whether something has.
  bool disarm() {
    left_ = -1;
    of_this_thread() = nullptr;
    return !hit_.empty();
  }
  /// The operation that failed first; empty: none.
  const std::string& hit() const { return hit_; }
  /// A failing exchange loses the pages (see `arena`).
  bool tears = false;

  bool fails(std::string_view operation) {
    if (left_ < 0 || (!only_.empty() && operation != only_) || left_-- > 0) return false;
    left_ = lasts_ ? 0 : -1;
    if (hit_.empty()) hit_ = operation;
    return true;
  }
  status try_to(std::string_view operation) {
    return fails(operation) ? refuse(error_code::execution_failed, operation, "success", "a failure that the test asked for")
                            : status{};
  }

  /// The armed plan that launchers obey.
  static fault_plan*& of_this_thread() {
    static thread_local fault_plan* plan = nullptr;
    return plan;
  }

 private:
  std::int64_t left_ = -1;
  bool lasts_ = false;
  std::string only_ = {};
  std::string hit_ = {};
};

/// Not counted: `open`, `take`, which a test makes itself.
template <class Arena>
class injecting_arena : public Arena {
 public:
  fault_plan* plan = nullptr;

  status open_spare() {
    if (status failed = plan->try_to("open_spare"); !failed.ok()) return failed;
    return Arena::open_spare();
  }
  status exchange(bool* torn) {
    if (status failed = plan->try_to("exchange"); !failed.ok()) {
      *torn = plan->tears;
      if (plan->tears) (void)Arena::drop();
      return failed;
    }
    return Arena::exchange(torn);
  }
  status drop() {
    status failed = plan->try_to("drop");
    const status dropped = Arena::drop();  // after an error it holds no pages either
    return failed.ok() ? dropped : failed;
  }
  status restore() {
    status failed = plan->try_to("restore");
    return failed.ok() ? Arena::restore() : failed;
  }
};

/// Not counted: what cannot fail (`open`, `release`, `flags`), and `record`, whose failure the next call reports.
template <class Executor>
class injecting_executor : public Executor {
 public:
  using lane = typename Executor::lane;
  using arena = injecting_arena<typename Executor::arena>;

  template <class... Args>
  explicit injecting_executor(fault_plan& plan, Args&&... args) : Executor(std::forward<Args>(args)...), plan_(plan) {}

  status reserve(const executor_needs& needs) {
    return attempt("reserve", [&] { return Executor::reserve(needs); });
  }
  status begin(std::span<const stream_ref> readers) {
    return attempt("begin", [&] { return Executor::begin(readers); });
  }
  status hold(std::span<const stream_ref> readers) {
    return attempt("hold", [&] { return Executor::hold(readers); });
  }
  /// Cancels all the same: who failed to wait for landings must not see them write into what a test does next.
  status cancel() {
    status failed = plan_.try_to("cancel");
    const status cancelled = Executor::cancel();
    return failed.ok() ? cancelled : failed;
  }
  status check_idle(std::span<const stream_ref> streams) {
    return attempt("check_idle", [&] { return Executor::check_idle(streams); });
  }
  status land(lane& on, std::span<const land_job> jobs) {
    return attempt("land", [&] { return Executor::land(on, jobs); });
  }
  status land_digested(lane& on, std::span<const land_job> jobs, std::span<const land_digest> into) {
    return attempt("land_digested", [&] { return Executor::land_digested(on, jobs, into); });
  }
  status compare(lane& on, std::span<const land_job> jobs, std::span<const std::int32_t> flags) {
    return attempt("compare", [&] { return Executor::compare(on, jobs, flags); });
  }
  status fill(lane& on, std::span<const fill_job> jobs) {
    return attempt("fill", [&] { return Executor::fill(on, jobs); });
  }
  status combine(lane& on, std::span<const combine_job> jobs) {
    return attempt("combine", [&] { return Executor::combine(on, jobs); });
  }
  status dequantise(lane& on, const dequant_key& key, std::span<const dequant_job> jobs) {
    return attempt("dequantise", [&] { return Executor::dequantise(on, key, jobs); });
  }
  status replay(lane& on, const typename Executor::table& kept, std::ptrdiff_t shift) {
    return attempt("replay", [&] { return Executor::replay(on, kept, shift); });
  }
  status wait_for(lane& on, event_ref event) {
    return attempt("wait_for", [&] { return Executor::wait_for(on, event); });
  }
  status join(lane& on, lane& other) {
    return attempt("join", [&] { return Executor::join(on, other); });
  }
  status wait(lane& on) {
    return attempt("wait", [&] { return Executor::wait(on); });
  }
  status read(lane& on, std::byte* host, const std::byte* data, std::int64_t bytes) {
    return attempt("read", [&] { return Executor::read(on, host, data, bytes); });
  }
  status write(lane& on, std::byte* data, const std::byte* host, std::int64_t bytes) {
    return attempt("write", [&] { return Executor::write(on, data, host, bytes); });
  }
  status digest(lane& on, std::span<const digest_job> jobs, std::span<std::uint64_t> sums) {
    return attempt("digest", [&] { return Executor::digest(on, jobs, sums); });
  }
  status first_difference(lane& on, const difference_job& pair, std::int64_t* first) {
    return attempt("first_difference", [&] { return Executor::first_difference(on, pair, first); });
  }
  status allocate(std::int64_t bytes, memory_kind where, std::byte** memory) {
    return attempt("allocate", [&] { return Executor::allocate(bytes, where, memory); });
  }

 private:
  template <class Call>
  status attempt(std::string_view operation, Call&& call) {
    status failed = plan_.try_to(operation);
    return failed.ok() ? call() : failed;
  }

  fault_plan& plan_;
};

template <class Executor>
struct launch_memory<injecting_executor<Executor>> : launch_memory<Executor> {};

/// What else a test needs of a device. `select`: for the calling thread. `event`: one that has completed. `readable`: how
/// to mark memory that `place` gave so that it may come behind an event.
template <class Executor>
struct test_device;

template <>
struct test_device<host_executor> {
  static int count() { return 1; }
  static void select(int) {}
  static void synchronize() {}
  static event_ref event() {
    static int something = 0;
    return {&something};
  }
  static memory_kind readable(memory_kind) { return memory_kind::pinned; }
};

}  // namespace wreload::test
