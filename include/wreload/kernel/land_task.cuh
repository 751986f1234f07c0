#pragma once
/// `land_task`: a landing as kernels take it, cut into units.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../core/job.hpp"
#include "../core/shape.hpp"
#include "../core/storage_map.hpp"
#include "../tuning/land_rows.hpp"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// A `land_job` cut into units of `unit_rows` rows x one segment; a swizzled one into units of one band (128 storage
/// rows) x one segment.
///
///   cols  bytes where the rows are copied as runs (`from == to == u8`, source columns contiguous), else elements
///   map   device memory; null: rows lie row-major behind `destination`
struct land_task {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  const storage_map* map = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t source_row_stride_bytes = 0;
  std::int64_t source_col_stride_bytes = 0;
  std::int64_t destination_row_stride_bytes = 0;
  std::int64_t map_row = 0;
  std::int64_t map_col = 0;    ///< of a swizzled task
  std::uint32_t bands = 0;     ///< of a swizzled task: of 128 storage rows; 0: not swizzled
  std::uint32_t first_band = 0;
  std::uint32_t first_unit = 0;
  std::uint32_t unit_rows = 1;
  std::uint32_t segments = 1;  ///< per row
  std::int32_t flag = 0;       ///< `compare`: which flag a difference sets
  dtype from = dtype::none;
  dtype to = dtype::none;
  bool runs = false;   ///< rows are copied as runs of bytes
  bool alike = false;  ///< and all lie alike in 16 bytes, evenly apart: a unit's rows are put together

  __host__ __device__ std::int64_t segment() const {
    return runs ? tuning::land_rows::segment_bytes : tuning::land_rows::segment_elements;
  }
  std::uint64_t units() const {
    return (bands != 0 ? bands : static_cast<std::uint64_t>(ceil_div(rows, unit_rows))) * segments;
  }
};

inline constexpr int swizzle_group_cols = 16;  ///< what a lane reads of a row at once; segments begin at a multiple

/// Cuts a swizzled task: the bands that its rows can lie in, and segments of `swizzle_unit_cols` columns.
inline void cut_swizzled(land_task& task, const land_job& job, const storage_map& map) {
  const row_range rows = map_rows(map, {job.map_row, job.map_row + job.rows});
  task.first_band = static_cast<std::uint32_t>(rows.begin / 128);
  task.bands = static_cast<std::uint32_t>(ceil_div(rows.end, 128) - rows.begin / 128);
  const std::int64_t first_col = job.map_col / swizzle_group_cols * swizzle_group_cols;
  task.segments = static_cast<std::uint32_t>(
      ceil_div(job.map_col + job.cols - first_col, tuning::land_rows::swizzle_unit_cols));
}

/// The task of a job that has elements. Rows that follow each other evenly on both sides become one.
///
///   map     the job's map in host memory, and `device_map` the same in device memory; null: none
inline land_task make_task(const land_job& job, const storage_map* map, const storage_map* device_map) {
  land_task task{.source = job.source,
                 .destination = job.destination,
                 .map = device_map,
                 .rows = job.rows,
                 .cols = job.cols,
                 .source_row_stride_bytes = job.source_row_stride_bytes,
                 .source_col_stride_bytes = job.source_col_stride_bytes,
                 .destination_row_stride_bytes = job.destination_row_stride_bytes,
                 .map_row = job.map_row,
                 .map_col = job.map_col,
                 .from = job.from,
                 .to = job.to};
  const std::int64_t element = bytes_of(job.from);
  if (map != nullptr && !keeps_rows(*map)) {
    cut_swizzled(task, job, *map);
    return task;
  }
  if (map != nullptr) task.destination += job.map_col * bytes_of(job.to);
  if (task.cols == 1) task.source_col_stride_bytes = task.source_row_stride_bytes;
  if (map == nullptr && task.source_row_stride_bytes == task.cols * task.source_col_stride_bytes &&
      task.destination_row_stride_bytes == task.cols * bytes_of(job.to)) {
    task.cols *= task.rows;
    task.rows = 1;
  }
  task.runs = job.from == job.to && (task.cols == 1 || task.source_col_stride_bytes == element);
  if (task.runs) {
    task.cols *= element;
    task.from = task.to = dtype::u8;
  }
  task.alike = task.runs && map == nullptr &&
               (task.rows == 1 || (task.source_row_stride_bytes % 16 == 0 && task.destination_row_stride_bytes % 16 == 0));
  const std::int64_t most_rows = task.alike ? tuning::land_rows::most_alike_rows : tuning::land_rows::most_unit_rows;
  task.unit_rows = static_cast<std::uint32_t>(std::clamp<std::int64_t>(task.segment() / task.cols, 1, most_rows));
  task.segments = static_cast<std::uint32_t>(ceil_div(task.cols, task.segment()));
  return task;
}

/// Where a row of a task that is not swizzled starts in the destination.
__device__ inline std::byte* destination_row(const land_task& task, std::int64_t row) {
  if (task.map != nullptr) row = map_row(*task.map, task.map_row + row);
  return task.destination + row * task.destination_row_stride_bytes;
}

}  // namespace kernel
}  // namespace wreload
