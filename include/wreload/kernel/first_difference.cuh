#pragma once
/// `first_difference`: where two tensors first differ.

#include <cub/warp/warp_reduce.cuh>
#include <cuda/functional>

#include <cstddef>
#include <cstdint>

#include "../core/job.hpp"
#include "../core/shape.hpp"
#include "../tuning/first_difference.hpp"
#include "bytes.cuh"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// A `difference_job` in units of `unit_rows` rows x one segment.
struct difference_task {
  difference_job job = {};
  std::uint32_t first_unit = 0;
  std::uint32_t unit_rows = 1;
  std::uint32_t segments = 1;
  std::uint32_t unused = 0;

  std::uint64_t units() const { return static_cast<std::uint64_t>(ceil_div(job.rows, unit_rows)) * segments; }
};

/// The task of a job that has bytes. Dense rows on both sides become one: byte numbers stay the same.
inline difference_task make_task(const difference_job& job) {
  difference_task task{job};
  if (job.row_bytes == job.a_row_stride_bytes && job.row_bytes == job.b_row_stride_bytes) {
    task.job.row_bytes *= job.rows;
    task.job.rows = 1;
  }
  using choice = tuning::first_difference;
  const std::int64_t rows = choice::segment_bytes / task.job.row_bytes;
  task.unit_rows =
      static_cast<std::uint32_t>(rows < 1 ? 1 : rows > choice::most_unit_rows ? choice::most_unit_rows : rows);
  task.segments = static_cast<std::uint32_t>(ceil_div(task.job.row_bytes, choice::segment_bytes));
  return task;
}

/// This lane's first differing byte in a run, or `bytes`: vectors where both sides allow, and single bytes.
__device__ inline int differing_byte(const std::byte* a, const std::byte* b, int bytes) {
  const int lane = threadIdx.x % 32;
  const bool together = misalignment(a, 16) == misalignment(b, 16);
  const int edge = static_cast<int>((16 - misalignment(a, 16)) % 16);
  const int head = !together ? bytes : edge < bytes ? edge : bytes;
  const int vectors = (bytes - head) / 16;
  for (int i = lane; i < head; i += 32)
    if (a[i] != b[i]) return i;
  for (int i = lane; i < vectors; i += 32) {
    const uint4 x = *reinterpret_cast<const uint4*>(a + head + 16 * i);
    const uint4 y = *reinterpret_cast<const uint4*>(b + head + 16 * i);
    if (x.x == y.x && x.y == y.y && x.z == y.z && x.w == y.w) continue;
    int at = head + 16 * i;
    while (a[at] == b[at]) ++at;
    return at;
  }
  for (int i = head + 16 * vectors + lane; i < bytes; i += 32)
    if (a[i] != b[i]) return i;
  return bytes;
}

/// Lowers `*first` to the number of the first differing byte, row * row_bytes + offset.
///
///   first  device memory; the host has set it to the largest value, which stays where nothing differs
template <int BlockThreads>
__global__ void __launch_bounds__(BlockThreads, tuning::first_difference::blocks_per_multiprocessor)
    first_difference(const __grid_constant__ work<difference_task> todo, unsigned long long* first) {
  using reduce = cub::WarpReduce<int>;
  __shared__ typename reduce::TempStorage scratch[BlockThreads / 32];
  if (enter(todo.gate))
    for_each_unit<BlockThreads>(todo, [&](const difference_task& task, std::uint32_t unit) {
      const difference_job& job = task.job;
      const std::int64_t first_row = std::int64_t{unit / task.segments} * task.unit_rows;
      const std::int64_t last_row = min(first_row + task.unit_rows, job.rows);
      const std::int64_t begin = std::int64_t{unit % task.segments} * tuning::first_difference::segment_bytes;
      const int bytes =
          static_cast<int>(min(std::int64_t{tuning::first_difference::segment_bytes}, job.row_bytes - begin));
      for (std::int64_t row = first_row; row < last_row; ++row) {
        const int mine = differing_byte(job.a + row * job.a_row_stride_bytes + begin,
                                        job.b + row * job.b_row_stride_bytes + begin, bytes);
        const int lowest = reduce(scratch[threadIdx.x / 32]).Reduce(mine, cuda::minimum<int>{});
        if (threadIdx.x % 32 == 0 && lowest < bytes)
          atomicMin(first, static_cast<unsigned long long>(row * job.row_bytes + begin + lowest));
        __syncwarp();
      }
    });
  leave(todo.gate);
}

}  // namespace kernel
}  // namespace wreload
