#pragma once
/// Units dealt to whole blocks, ahead of the work on them.

#include <cstdint>
#include <type_traits>

#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// The units that a block is at, in shared memory; unit k of the block lies in slot k % 4. Between two barriers the block
/// may store unit k and read unit k + 1, and at once go on to read k + 2; so k + 3 is the one that is dealt meanwhile.
///
///   first_units  where tasks 0, stride, 2 * stride, ... of the launch begin
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
  std::uint32_t near;  ///< the dealer's: where in the index the unit dealt last was found

  __device__ const Task& task(std::uint32_t k) const { return *reinterpret_cast<const Task*>(tasks[k % slots]); }
  __device__ std::uint32_t index(std::uint32_t k) const { return indices[k % slots]; }

  /// Fills the index, by the whole block. Requires: a barrier before units are dealt
  __device__ void index_tasks(const work<Task>& todo) {
    const Task* from = todo.first();
    const std::uint32_t apart = (todo.count + most_indexed - 1) / most_indexed;
    const std::uint32_t count = (todo.count + apart - 1) / apart;
    for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) first_units[i] = from[i * apart].first_unit;
    if (threadIdx.x != 0) return;
    indexed = count;
    stride = apart;
    near = 0;
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
    std::uint32_t unit = blockIdx.x + k * gridDim.x;
    if (k >= uncounted) {
      unit = uncounted * gridDim.x + __shfl_sync(0xFFFFFFFFU, next_, 0);
      ask();
    }
    std::uint32_t index = units::none;
    if (unit < todo_.units) {
      const Task* tasks = todo_.first();
      const std::uint32_t stride = to_.stride;
      const auto indexed = [&](std::uint32_t i) { return to_.first_units[i]; };
      const std::uint32_t near = find_last(to_.near, to_.indexed - 1, unit, indexed);
      std::uint32_t task = near * stride, first_unit = to_.first_units[near];
      if (stride != 1) {
        const auto each = [&](std::uint32_t i) { return tasks[i].first_unit; };
        task = find_last(task, min(task + stride, todo_.count) - 1, unit, each);
        first_unit = tasks[task].first_unit;
      }
      index = unit - first_unit;
      const auto* words = reinterpret_cast<const std::uint32_t*>(tasks + task);
      for (std::uint32_t i = lane; i < sizeof(Task) / 4; i += 32)
        reinterpret_cast<std::uint32_t*>(to_.tasks[slot])[i] = words[i];
      shift_source(todo_, *reinterpret_cast<Task*>(to_.tasks[slot]));
      __syncwarp();
      if (lane == 0) to_.near = near;
    }
    if (lane == 0) to_.indices[slot] = index;
    __syncwarp();
  }

 private:
  __device__ void ask() {
    if (threadIdx.x == 0) next_ = atomicAdd(&todo_.gate.counters[counter::dealt], 1U);
  }

  const work<Task>& todo_;
  units& to_;
  std::uint32_t next_ = 0;  ///< thread 0: what the counter says
};

}  // namespace kernel
}  // namespace wreload
