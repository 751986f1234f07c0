#pragma once
/// `cuda_table`: launches that are kept, to be made again with other sources.

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "../kernel/work.cuh"

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

}  // namespace wreload
