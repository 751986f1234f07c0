#pragma once
/// Executors that fail, or take their time, when a test says so: what a device fault or a slow copy looks like to an
/// update.

#include <atomic>

#include <wreload/executor/executor.hpp>

#include "../memory.hpp"

namespace wreload::test {

/// Each `…_left` counts down; the call that finds it at zero fails, and has done nothing. Negative: never.
template <class Executor>
class failing_executor : public Executor {
 public:
  using lane = typename Executor::lane;

  std::int64_t lands_left = -1;
  std::int64_t dequants_left = -1;
  std::int64_t combines_left = -1;
  std::int64_t combine_calls = 0;
  std::int64_t combine_jobs = 0;
  std::int64_t waits_left = -1;

  status land(lane& on, std::span<const land_job> jobs) {
    return fails(lands_left) ? failure("land") : Executor::land(on, jobs);
  }
  status dequantise(lane& on, const dequant_key& key, std::span<const dequant_job> jobs) {
    return fails(dequants_left) ? failure("dequantise") : Executor::dequantise(on, key, jobs);
  }
  status combine(lane& on, std::span<const combine_job> jobs) {
    ++combine_calls;
    combine_jobs += static_cast<std::int64_t>(jobs.size());
    return fails(combines_left) ? failure("combine") : Executor::combine(on, jobs);
  }
  status wait(lane& on) { return fails(waits_left) ? failure("wait") : Executor::wait(on); }

 private:
  static bool fails(std::int64_t& left) { return left >= 0 && left-- == 0; }
  static status failure(std::string_view what) {
    return refuse(error_code::execution_failed, what, "success", "a failure that the test asked for");
  }
};

/// An executor whose landings wait for the test while `closed`: a copy that takes its time.
template <class Executor>
class gated_executor : public Executor {
 public:
  using lane = typename Executor::lane;

  std::atomic<bool> closed = false;
  std::atomic<int> waiting = 0;

  void let_pass() {
    closed = false;
    closed.notify_all();
  }
  status land(lane& on, std::span<const land_job> jobs) {
    ++waiting;
    closed.wait(true);
    --waiting;
    return Executor::land(on, jobs);
  }
};

template <class Executor>
struct launch_memory<failing_executor<Executor>> : launch_memory<Executor> {};
template <class Executor>
class test_memory<failing_executor<Executor>> : public test_memory<Executor> {};
template <class Executor>
class test_memory<gated_executor<Executor>> : public test_memory<Executor> {};

}  // namespace wreload::test
