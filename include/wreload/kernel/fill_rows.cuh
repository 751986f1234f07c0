#pragma once
/// `fill_rows`: sets every byte of rectangles to one value (pads).

#include <cstddef>
#include <cstdint>

#include "../core/job.hpp"
#include "../core/shape.hpp"
#include "../tuning/fill_rows.hpp"
#include "bytes.cuh"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// A `fill_job` cut into units of `unit_rows` rows x one segment.
struct fill_task {
  std::byte* destination = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t row_stride_bytes = 0;
  std::uint32_t first_unit = 0;
  std::uint32_t unit_rows = 1;
  std::uint32_t segments = 1;
  std::byte value = {};

  std::uint64_t units() const { return static_cast<std::uint64_t>(ceil_div(rows, unit_rows)) * segments; }
};

inline fill_task make_task(const fill_job& job) {
  fill_task task{job.destination, job.rows, job.row_bytes, job.row_stride_bytes, 0, 1, 1, job.value};
  if (task.row_bytes == task.row_stride_bytes) {
    task.row_bytes *= task.rows;
    task.rows = 1;
  }
  const std::int64_t rows = tuning::fill_rows::segment_bytes / task.row_bytes;
  task.unit_rows = static_cast<std::uint32_t>(
      rows < 1 ? 1 : rows > tuning::fill_rows::most_unit_rows ? tuning::fill_rows::most_unit_rows : rows);
  task.segments = static_cast<std::uint32_t>(ceil_div(task.row_bytes, tuning::fill_rows::segment_bytes));
  return task;
}

/// Fills a run of bytes with one warp: 16-byte stores where they fit.
inline __device__ void fill_run(std::byte* to, std::int64_t bytes, std::byte value) {
  const int lane = threadIdx.x % 32;
  const std::int64_t edge = (16 - misalignment(to, 16)) % 16;
  const std::int64_t head = edge < bytes ? edge : bytes;
  const std::int64_t vectors = (bytes - head) / 16;
  const std::uint32_t word = 0x01010101U * static_cast<std::uint8_t>(value);
  for (std::int64_t i = lane; i < vectors; i += 32)
    *reinterpret_cast<uint4*>(to + head + 16 * i) = uint4{word, word, word, word};
  for (std::int64_t i = lane; i < head; i += 32) to[i] = value;
  for (std::int64_t i = head + 16 * vectors + lane; i < bytes; i += 32) to[i] = value;
}

/// Fills the tasks' rectangles, one warp a unit.
template <int BlockThreads>
__global__ void __launch_bounds__(BlockThreads) fill_rows(const __grid_constant__ work<fill_task> todo) {
  if (enter(todo.gate))
    for_each_unit<BlockThreads>(todo, [&](const fill_task& task, std::uint32_t unit) {
      const std::int64_t first_row = std::int64_t{unit / task.segments} * task.unit_rows;
      const std::int64_t last_row = min(first_row + task.unit_rows, task.rows);
      const std::int64_t begin = std::int64_t{unit % task.segments} * tuning::fill_rows::segment_bytes;
      const std::int64_t bytes = min(std::int64_t{tuning::fill_rows::segment_bytes}, task.row_bytes - begin);
      for (std::int64_t row = first_row; row < last_row; ++row)
        fill_run(task.destination + row * task.row_stride_bytes + begin, bytes, task.value);
    });
  leave(todo.gate);
}

}  // namespace kernel
}  // namespace wreload
