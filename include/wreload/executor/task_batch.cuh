#pragma once
/// `task_batch`: tasks of one kernel, gathered until a launch is full.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "../kernel/work.cuh"
#include "cuda_lanes.cuh"
#include "cuda_launcher.cuh"

namespace wreload::detail {

/// The tasks of the next launch lie in its parameter, or, where more are expected and there is room, in a piece of the
/// tables. What was not flushed when the batch goes is never launched.
template <class Choice, class Task, class... Parameters>
class task_batch {
 public:
  /// A kernel, how it is launched, and what it is given besides tasks.
  task_batch(cuda_launcher& launcher, const cuda_lane& on, const Choice&,
             void (*function)(kernel::work<Task>, Parameters...), const Parameters&... parameters)
      : launcher_(launcher), on_(on), record_(launcher.flight()), function_(function), parameters_(parameters...) {}

  /// The launch that takes the next task, if one is begun.
  launch_id id() const { return record_.id(); }

  /// Adds a task. `expected`: this and the tasks that may follow. `flush`: launches this batch, and others before it.
  template <class Flush>
  status add(const Task& task, std::size_t expected, Flush&& flush) {
    if (status failed = make_room(expected, flush); !failed.ok()) return failed;
    Task& added = tasks_[todo_.count++];
    added = task;
    added.first_unit = todo_.units;
    todo_.units += static_cast<std::uint32_t>(task.units());
    return {};
  }
  status add(const Task& task, std::size_t expected) {
    return add(task, expected, [this] { return flush(); });
  }

  /// Launches what is full, and begins a launch where there is none.
  template <class Flush>
  status make_room(std::size_t expected, Flush&& flush) {
    if (record_.is_held() && (todo_.count == capacity_ || todo_.units > kernel::most_units))
      if (status failed = flush(); !failed.ok()) return failed;
    return record_.is_held() ? status{} : begin(expected);
  }

  /// Launches what there is.
  status flush() {
    if (!record_.is_held() || todo_.count == 0) return {};
    todo_.tasks = nullptr;
    if (offset_ >= 0)
      if (status failed = launcher_.upload(on_, offset_, todo_); !failed.ok()) return failed;
    return std::apply(
        [&](const Parameters&... parameters) {
          return launcher_.template launch<Choice>(on_, record_, function_, todo_, parameters...);
        },
        parameters_);
  }

 private:
  status begin(std::size_t expected) {
    if (status failed = record_.take(on_); !failed.ok()) return failed;
    tasks_ = todo_.inline_tasks;
    capacity_ = kernel::work<Task>::most_inline;
    offset_ = -1;
    todo_.count = 0;
    todo_.units = 0;
    if (expected <= capacity_) return {};
    task_tables& tables = launcher_.tables();
    constexpr std::int64_t task_bytes = sizeof(Task);
    const std::int64_t room = std::min(static_cast<std::int64_t>(expected), tables.size() / task_bytes);
    offset_ = tables.try_take(room * task_bytes, record_.id());
    if (offset_ < 0) return {};
    tasks_ = reinterpret_cast<Task*>(tables.host(offset_));
    capacity_ = static_cast<std::uint32_t>(room);
    return {};
  }

  cuda_launcher& launcher_;
  const cuda_lane& on_;
  launch_record record_;
  void (*function_)(kernel::work<Task>, Parameters...);
  std::tuple<Parameters...> parameters_;
  kernel::work<Task> todo_ = {};
  Task* tasks_ = nullptr;
  std::uint32_t capacity_ = 0;
  std::int64_t offset_ = -1;  ///< in the tables; -1: inline
};

}  // namespace wreload::detail
