#pragma once
/// `cuda_table`: launches that are kept, to be made again with other sources. `kept_tasks`: memory for their tasks.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "../kernel/work.cuh"
#include "cuda_flight.cuh"
#include "cuda_memory.cuh"

namespace wreload {

/// Launches in their order. Their tasks lie in the executor's plan memory, or (few) in the launch's own parameter.
struct cuda_table {
  static constexpr std::size_t parameter_bytes = 4096;  ///< at least those of any `kernel::work`

  /// A kernel over tasks, and its further parameter.
  struct launch {
    const void* function = nullptr;
    unsigned blocks = 0;
    unsigned threads = 0;
    alignas(8) std::array<std::byte, 16> parameter = {};
    std::vector<std::byte> todo = {};  ///< the `kernel::work`, as far as it is used
  };

  std::vector<launch> launches = {};
  bool whole = true;  ///< nothing is missing
  bool empty() const { return launches.empty(); }

  template <class Work, class... Parameters>
  void add(void (*function)(Work, Parameters...), unsigned blocks, unsigned threads, const Work& todo,
           const Parameters&... parameters) {
    static_assert(std::is_trivially_copyable_v<Work> && sizeof(Work) <= parameter_bytes);
    static_assert(offsetof(Work, gate) == 0 && offsetof(Work, source_shift) == sizeof todo.gate,
                  "the gate and the shift are written over when the launch is made again");
    static_assert(sizeof...(Parameters) <= 1 && ((sizeof(Parameters) <= 16) && ...));
    launch kept{reinterpret_cast<const void*>(function), blocks, threads};
    (std::memcpy(kept.parameter.data(), &parameters, sizeof parameters), ...);
    const std::size_t in_place = todo.tasks != nullptr ? 0 : todo.count * sizeof todo.inline_tasks[0];
    kept.todo.resize(offsetof(Work, inline_tasks) + in_place);
    std::memcpy(kept.todo.data(), &todo, kept.todo.size());
    launches.push_back(static_cast<launch&&>(kept));
  }
};

namespace detail {

/// Device memory for tasks that outlive their launch, taken from its beginning on. What was taken since a mark can be
/// dropped: it is given back at once, or when nothing is queued any more.
class kept_tasks {
 public:
  explicit kept_tasks(const cuda_flight& flight) : flight_(flight) {}

  status reserve(std::int64_t bytes) {
    taken_ = 0;
    dropped_from_ = nothing;
    return memory_.allocate(bytes);
  }
  std::int64_t bytes() const { return memory_.bytes(); }

  /// Null where there is no room, and the table is not whole.
  std::byte* take(cuda_table& into, std::size_t bytes) {
    const std::lock_guard guard(lock_);
    const std::int64_t rounded = static_cast<std::int64_t>((bytes + 255) / 256 * 256);
    if (memory_.bytes() - taken_ < rounded) into.whole = false;
    if (!into.whole) return nullptr;
    dropped_from_ = nothing;  // what lies below stays taken until all is dropped
    return memory_.data() + std::exchange(taken_, taken_ + rounded);
  }
  std::int64_t taken() {
    const std::lock_guard guard(lock_);
    give_back();
    return taken_;
  }
  void drop(std::int64_t mark) {
    const std::lock_guard guard(lock_);
    dropped_from_ = std::min(dropped_from_, mark);
    give_back();
  }

 private:
  static constexpr std::int64_t nothing = INT64_MAX;

  /// A queued launch of a cancelled update reads no task, but the copy of its tasks to the device may still come.
  void give_back() {
    if (dropped_from_ < taken_ && !flight_.all_done()) return;
    taken_ = std::min(taken_, dropped_from_);
    dropped_from_ = nothing;
  }

  const cuda_flight& flight_;
  cuda_memory memory_{cuda_memory::kind::device};
  std::mutex lock_ = {};
  std::int64_t taken_ = 0;
  std::int64_t dropped_from_ = nothing;
};

}  // namespace detail
}  // namespace wreload
