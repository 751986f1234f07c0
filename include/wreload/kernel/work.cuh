#pragma once
/// What every kernel is launched with: tasks, counters that deal them out, and a gate that a cancelled update closes.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/config.hpp"

namespace wreload {

/// What a launch is doing, in a word of pinned memory. The host writes `queued`, the device the others.
struct launch_state {
  static constexpr std::uint32_t done = 0;
  static constexpr std::uint32_t queued = 1;
  static constexpr std::uint32_t running = 2;
};

namespace kernel WRELOAD_HIDDEN {

/// What the words of `gate::counters` count.
struct counter {
  static constexpr int dealt = 0;    ///< units
  static constexpr int entered = 1;  ///< blocks
  static constexpr int left = 2;     ///< blocks
  static constexpr int verdict = 3;  ///< of the first block to enter: 0 not yet, else `lives` or `dead`
  static constexpr int words = 4;
  static constexpr std::uint32_t lives = 1;
  static constexpr std::uint32_t dead = 2;
};

/// The gate of one launch.
///
///   state       pinned word of this launch
///   live_epoch  pinned word of the executor: the host adds one to cancel everything that was enqueued before
///   counters    words of device memory, zero between launches: see `counter`
///   epoch       the epoch that the launch belongs to
struct gate {
  std::uint32_t* state = nullptr;
  const std::uint32_t* live_epoch = nullptr;
  std::uint32_t* counters = nullptr;
  std::uint32_t epoch = 0;
};

/// Parameter of a kernel over tasks. Few tasks travel in it, more lie in device memory. A task has `first_unit`: its
/// units (pieces of work for one warp or block) are numbered on from those of the task before.
///
///   tasks  `count` tasks, first_unit ascending; null: they are in `inline_tasks`
///   source_shift  bytes that are added to the `source` of a task that has one: a kept table meets a new bucket
///   units  of all tasks together; far below 2^32, since a unit is 8 KB or 64 rows (see `most_units`)
template <class Task>
struct work {
  static constexpr std::uint32_t most_inline = (4096 - 64) / sizeof(Task);

  kernel::gate gate = {};
  std::ptrdiff_t source_shift = 0;
  const Task* tasks = nullptr;
  std::uint32_t units = 0;
  std::uint32_t count = 0;
  Task inline_tasks[most_inline] = {};

  __host__ __device__ const Task* first() const { return tasks != nullptr ? tasks : inline_tasks; }
};

template <class Task>
concept has_source = requires(const Task& task) { task.source; };

/// Says that the launch runs, then asks whether its update still lives; every thread of every block gets one answer. The
/// first block to enter asks across PCIe, the others wait for its verdict in device memory (it runs, so it will come).
///
/// No write can slip behind `cancel`: the first block stores `running`, fences, then loads the epoch; `cancel` stores the
/// epoch, fences, then loads the states. Of two threads that each store, fence and load, at least one sees the other's
/// store. So either the launch sees the new epoch and touches nothing, or `cancel` sees `running` and waits until the
/// last block left. Those words lie in host memory: `cancel` needs no stream, and so cannot wait for one.
///
/// Cost:      one write and one read across PCIe per launch, some 3 us. (By every block they cost 0.5 ms on an H200.)
__device__ inline bool enter(const gate& at) {
  __shared__ std::uint32_t verdict;
  if (threadIdx.x == 0) {
    volatile std::uint32_t* published = at.counters + counter::verdict;
    if (atomicAdd(&at.counters[counter::entered], 1U) == 0) {
      *static_cast<volatile std::uint32_t*>(at.state) = launch_state::running;
      __threadfence_system();
      const std::uint32_t live = *static_cast<const volatile std::uint32_t*>(at.live_epoch);
      verdict = live == at.epoch ? counter::lives : counter::dead;
      *published = verdict;
    } else {
      while ((verdict = *published) == 0) __nanosleep(100);
    }
  }
  __syncthreads();
  return verdict == counter::lives;
}

/// Ends a block, dead or alive. The last one clears the counters and says `done`: after the writes of all blocks.
__device__ inline void leave(const gate& at) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(&at.counters[counter::left], 1U) + 1 != gridDim.x) return;
  for (int i = 0; i < counter::words; ++i) at.counters[i] = 0;
  __threadfence_system();
  *static_cast<volatile std::uint32_t*>(at.state) = launch_state::done;
}

/// A launch with more units takes no further task. (One task has fewer than 2^31.)
inline constexpr std::uint64_t most_units = std::uint64_t{1} << 31;

/// The last of the tasks [low, last] that begins at or before a unit; `first_unit(i)` is where task i begins. By a whole
/// warp: each step asks 32 tasks.
///
/// Requires: task `low` begins at or before the unit; every task has a unit
template <class FirstUnit>
__device__ std::uint32_t find_last(std::uint32_t low, std::uint32_t last, std::uint32_t unit, FirstUnit&& first_unit) {
  std::uint32_t ahead = min(last - low, unit - first_unit(low));  // how many tasks further, at most
  while (ahead > 0) {
    const std::uint32_t step = ahead / 32 + 1;
    const std::uint32_t offset = step * (threadIdx.x % 32 + 1);
    const bool begins = offset <= ahead && first_unit(low + offset) <= unit;
    const std::uint32_t passed = step * static_cast<std::uint32_t>(__popc(__ballot_sync(0xFFFFFFFFU, begins)));
    low += passed;
    ahead = min(ahead - passed, step - 1);
  }
  return low;
}

/// Where a kept table meets a new bucket: moves the source of a task that one warp has written to shared memory.
template <class Task>
__device__ void shift_source(const work<Task>& todo, Task& task) {
  if constexpr (has_source<Task>) {
    if (todo.source_shift == 0) return;
    __syncwarp();
    if (threadIdx.x % 32 == 0) task.source += todo.source_shift;
    __syncwarp();
  }
}

/// Calls `unit(task, index inside the task)` in each warp for the units dealt to it: the first by its number, the
/// others by a shared counter, asked one unit ahead. (A fixed stride leaves the multiprocessors far from their memory
/// behind.) The next task is most often one of the 32 behind the last: where those begin is read ahead, too. The task lies
/// in shared memory: its fields cost no registers.
template <int BlockThreads, class Task, class Unit>
__device__ void for_each_unit(const work<Task>& todo, Unit&& unit) {
  static_assert(sizeof(Task) % 4 == 0 && alignof(Task) <= 8 && std::is_trivially_copyable_v<Task>);
  __shared__ std::uint64_t held[BlockThreads / 32][(sizeof(Task) + 7) / 8];
  std::uint64_t(&mine)[(sizeof(Task) + 7) / 8] = held[threadIdx.x / 32];
  const Task& task = *reinterpret_cast<const Task*>(mine);
  const Task* tasks = todo.first();
  const std::uint32_t lane = threadIdx.x % 32;
  std::uint32_t at = blockIdx.x * (BlockThreads / 32) + threadIdx.x / 32;
  const auto first_unit = [&](std::uint32_t i) { return i < todo.count ? tasks[i].first_unit : todo.units; };
  std::uint32_t end = 0;
  std::uint32_t index = 0;
  std::uint32_t nearby = 0;  // where the task `lane + 1` behind `index` begins
  while (at < todo.units) {
    std::uint32_t dealt = 0;
    if (lane == 0) dealt = atomicAdd(&todo.gate.counters[counter::dealt], 1U);
    if (at >= end) {
      const int begun = __popc(__ballot_sync(0xFFFFFFFFU, nearby <= at));
      if (begun < 32) {
        index += static_cast<std::uint32_t>(begun);
        end = __shfl_sync(0xFFFFFFFFU, nearby, begun);
      } else {
        index = find_last(index, todo.count - 1, at, first_unit);
        end = first_unit(index + 1);
      }
      nearby = first_unit(index + 1 + lane);
      __syncwarp();
      const auto* words = reinterpret_cast<const std::uint32_t*>(tasks + index);
      for (std::uint32_t i = lane; i < sizeof(Task) / 4; i += 32) reinterpret_cast<std::uint32_t*>(mine)[i] = words[i];
      __syncwarp();
      shift_source(todo, *reinterpret_cast<Task*>(mine));
    }
    unit(task, at - task.first_unit);
    at = gridDim.x * (BlockThreads / 32) + __shfl_sync(0xFFFFFFFFU, dealt, 0);
  }
}

/// Launches a kernel with one work parameter and further ones.
template <class Task, class... Parameters>
cudaError_t launch(void (*function)(work<Task>, Parameters...), unsigned blocks, unsigned threads, cudaStream_t stream,
                   const work<Task>& todo, const Parameters&... parameters) {
  const void* arguments[] = {&todo, &parameters...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(function), dim3(blocks), dim3(threads),
                          const_cast<void**>(arguments), 0, stream);
}

/// Loads a kernel's code, which CUDA otherwise does at its first launch, allocating device memory.
template <class... Parameters>
cudaError_t preload(void (*function)(Parameters...)) {
  cudaFuncAttributes unused = {};
  return cudaFuncGetAttributes(&unused, reinterpret_cast<const void*>(function));
}

}  // namespace kernel
}  // namespace wreload
