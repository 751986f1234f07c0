#pragma once
/// Units dealt to whole blocks, ahead of the work on them.

#include <cuda_pipeline_primitives.h>

#include <cstdint>
#include <type_traits>

#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// The units that a block is at, in shared memory; unit k of the block lies in slot k % 4. Between two barriers the block
/// may store unit k and read unit k + 1, and at once go on to read k + 2; so k + 3 is the one that is dealt meanwhile.
///
///   first_units  where tasks 0, stride, 2 * stride, ... of the launch begin
///   nearby       where the 32 tasks behind `last_task` begin, unless all tasks are in `first_units`
template <class Task>
struct block_units {
  static constexpr std::uint32_t slots = 4;
  static constexpr std::uint32_t none = 0xFFFFFFFFU;  ///< index of the unit past the last
  static constexpr std::uint32_t most_indexed = 1024;
  static_assert(sizeof(Task) % 4 == 0 && alignof(Task) <= 8 && std::is_trivially_copyable_v<Task>);

  std::uint64_t tasks[slots][(sizeof(Task) + 7) / 8];
  std::uint32_t indices[slots];  ///< of the unit, inside its task
  std::uint32_t first_units[most_indexed];
  std::uint32_t indexed;
  std::uint32_t stride;
  std::uint32_t last_task;  ///< of the unit dealt last
  std::uint32_t nearby[32];

  __device__ const Task& task(std::uint32_t k) const { return *reinterpret_cast<const Task*>(tasks[k % slots]); }
  __device__ std::uint32_t index(std::uint32_t k) const { return indices[k % slots]; }

  /// Fills the index, by the whole block. Requires: a barrier before units are dealt
  __device__ void index_tasks(const work<Task>& todo) {
    const Task* from = todo.first();
    const std::uint32_t apart = (todo.count + most_indexed - 1) / most_indexed;
    const std::uint32_t count = (todo.count + apart - 1) / apart;
    for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) first_units[i] = from[i * apart].first_unit;
    if (threadIdx.x < 32) nearby[threadIdx.x] = 0;  // before every unit: not known
    if (threadIdx.x != 0) return;
    indexed = count;
    stride = apart;
    last_task = 0;
  }
};

/// Deals units to a block, all of it by one warp: the first ones by its number, the others by the launch's counter, asked
/// one ahead. A unit that was dealt is seen by the block behind a barrier.
template <class Task>
class block_dealer {
  using units = block_units<Task>;

 public:
  static constexpr std::uint32_t uncounted = 3;  ///< units of a block that come by its number

  __device__ block_dealer(const work<Task>& todo, units& to) : todo_(todo), to_(to) { ask(); }

  /// Writes unit k of the block to its slot; k goes up by one with each call.
  __device__ void deal(std::uint32_t k) {
    const std::uint32_t lane = threadIdx.x % 32, slot = k % units::slots;
    __pipeline_wait_prior(0);  // what was read ahead
    __syncwarp();
    std::uint32_t unit = blockIdx.x + k * gridDim.x;
    if (k >= uncounted) {
      unit = uncounted * gridDim.x + __shfl_sync(0xFFFFFFFFU, next_, 0);
      ask();
    }
    std::uint32_t index = units::none;
    if (unit < todo_.units) {
      const std::uint32_t task = find(unit);
      const auto* words = reinterpret_cast<const std::uint32_t*>(todo_.first() + task);
      for (std::uint32_t i = lane; i < sizeof(Task) / 4; i += 32)
        reinterpret_cast<std::uint32_t*>(to_.tasks[slot])[i] = words[i];
      shift_source(todo_, *reinterpret_cast<Task*>(to_.tasks[slot]));
      if (to_.stride != 1) read_ahead(task + 1 + lane, to_.nearby[lane]);
      __syncwarp();
      index = unit - to_.task(k).first_unit;
      if (lane == 0) to_.last_task = task;
    }
    if (lane == 0) to_.indices[slot] = index;
    __syncwarp();
  }

 private:
  /// The task of a unit that is not in front of those dealt before.
  __device__ std::uint32_t find(std::uint32_t unit) const {
    const std::uint32_t stride = to_.stride, last = to_.last_task;
    if (stride != 1) {
      const int begun = __popc(__ballot_sync(0xFFFFFFFFU, to_.nearby[threadIdx.x % 32] <= unit));
      if (begun < 32) return last + static_cast<std::uint32_t>(begun);
    }
    const std::uint32_t near =
        find_last(last / stride, to_.indexed - 1, unit, [&](std::uint32_t i) { return to_.first_units[i]; });
    if (stride == 1) return near;
    return find_last(near * stride, min((near + 1) * stride, todo_.count) - 1, unit,
                     [&](std::uint32_t i) { return todo_.first()[i].first_unit; });
  }

  /// Where a task begins, on its way to shared memory: nobody waits for it before the next unit is dealt.
  __device__ void read_ahead(std::uint32_t task, std::uint32_t& to) const {
    if (task < todo_.count) {
      __pipeline_memcpy_async(&to, &todo_.first()[task].first_unit, sizeof to);
      __pipeline_commit();
    } else {
      to = todo_.units;
    }
  }

  __device__ void ask() {
    if (threadIdx.x == 0) next_ = atomicAdd(&todo_.gate.counters[counter::dealt], 1U);
  }

  const work<Task>& todo_;
  units& to_;
  std::uint32_t next_ = 0;  ///< thread 0: what the counter says
};

}  // namespace kernel
}  // namespace wreload
