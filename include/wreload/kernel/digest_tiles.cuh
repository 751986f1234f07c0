#pragma once
/// `digest_tiles`: sums of `digest_element` over tiles of tensors.

#include <cub/block/block_reduce.cuh>

#include <cstddef>
#include <cstdint>

#include "../core/job.hpp"
#include "../core/storage_map.hpp"
#include "../numerics/digest.hpp"
#include "../tuning/digest_tiles.hpp"
#include "bytes.cuh"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// A `digest_job`; one unit, whose number is the index of its sum.
struct digest_task {
  digest_job job = {};
  const storage_map* map = nullptr;  ///< device memory; null: row-major
  std::uint32_t first_unit = 0;
  std::uint32_t unused = 0;

  std::uint64_t units() const { return 1; }
};

inline digest_task make_task(const digest_job& job, const storage_map* device_map) { return {job, device_map}; }

/// The same for a tile of a mapped slot, element by element.
template <class Bits>
__device__ std::uint64_t mapped_share(const digest_job& job, const storage_map& map) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(Bits));
  std::uint64_t sum = 0;
  for (std::int64_t i = threadIdx.x; i < job.rows * job.cols; i += blockDim.x) {
    const std::int64_t row = i / job.cols, col = i % job.cols;
    const std::int64_t offset = map_offset(map, job.map_row + row, (job.map_col + col) * bytes, job.row_stride_bytes);
    sum += digest_element(static_cast<std::uint64_t>(job.first_index + row * job.index_row_stride + col),
                          load_any<Bits>(job.data + offset));
  }
  return sum;
}

/// This thread's share of the digest of a tile: 16 bytes at a time where the row is aligned, else single elements.
template <class Bits>
__device__ std::uint64_t digest_share(const digest_task& task) {
  const digest_job& job = task.job;
  if (task.map != nullptr) return mapped_share<Bits>(job, *task.map);
  constexpr int wide = 16 / static_cast<int>(sizeof(Bits));
  std::uint64_t sum = 0;
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const std::byte* first = job.data + row * job.row_stride_bytes;
    const auto index = static_cast<std::uint64_t>(job.first_index + row * job.index_row_stride);
    const std::int64_t vectors = misalignment(first, 16) == 0 ? job.cols / wide : 0;
    for (std::int64_t v = threadIdx.x; v < vectors; v += blockDim.x) {
      const uint4 read = reinterpret_cast<const uint4*>(first)[v];
      const std::uint64_t halves[2] = {read.x | std::uint64_t{read.y} << 32, read.z | std::uint64_t{read.w} << 32};
#pragma unroll
      for (int e = 0; e < wide; ++e) {
        const auto bits = static_cast<Bits>(halves[e / (wide / 2)] >> (8 * sizeof(Bits) * (e % (wide / 2))));
        sum += digest_element(index + static_cast<std::uint64_t>(v * wide + e), bits);
      }
    }
    for (std::int64_t col = vectors * wide + threadIdx.x; col < job.cols; col += blockDim.x)
      sum += digest_element(index + static_cast<std::uint64_t>(col),
                            load_any<Bits>(first + col * static_cast<std::int64_t>(sizeof(Bits))));
  }
  return sum;
}

/// Writes the digest of each tile to its place in `sums` (memory that the host reads).
///
/// Meaning:   the wrapping sum of `digest_element(index, bits)` over the tile, in any order
/// Cost:      one kernel for all dtypes; one read of every byte
template <int BlockThreads>
__global__ void __launch_bounds__(BlockThreads)
    digest_tiles(const __grid_constant__ work<digest_task> todo, std::uint64_t* sums) {
  using reduce = cub::BlockReduce<std::uint64_t, BlockThreads>;
  __shared__ typename reduce::TempStorage scratch;
  if (enter(todo.gate)) {
    const digest_task* tasks = todo.tasks != nullptr ? todo.tasks : todo.inline_tasks;
    for (std::uint32_t at = blockIdx.x; at < todo.count; at += gridDim.x) {
      const digest_task& task = tasks[at];
      const std::uint64_t share = task.job.element_bytes == 1   ? digest_share<std::uint8_t>(task)
                                  : task.job.element_bytes == 2 ? digest_share<std::uint16_t>(task)
                                  : task.job.element_bytes == 4 ? digest_share<std::uint32_t>(task)
                                                                : digest_share<std::uint64_t>(task);
      const std::uint64_t sum = reduce(scratch).Sum(share);
      if (threadIdx.x == 0) sums[at] = sum;
      __syncthreads();
    }
  }
  leave(todo.gate);
}

}  // namespace kernel
}  // namespace wreload
