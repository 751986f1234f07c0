#pragma once
/// `dequant_task`: a conversion as its kernel takes it, cut into units.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "../core/job.hpp"
#include "../core/shape.hpp"
#include "../tuning/dequant_rows.hpp"
#include "block_divisor.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// Block sizes of a key.
struct dequant_blocks {
  block_divisor rows = {};
  block_divisor cols = {};
};

/// A `dequant_job` in units of `unit_rows` rows. A row is `vectors` vectors of as many elements as one store takes (paths
/// `wide`), or of single elements, and some columns left over.
struct dequant_task {
  enum path_kind : std::uint32_t {
    wide_one_scale,  ///< 16-byte stores, all elements of a store in one scale block
    wide,            ///< 16-byte stores, a scale looked up for each element
    single           ///< single elements at any alignment
  };

  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  const std::byte* scale = nullptr;
  std::int64_t source_row_stride_bytes = 0;
  std::int64_t destination_row_stride_bytes = 0;
  std::int64_t scale_row_stride_bytes = 0;
  std::uint32_t first_unit = 0;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint32_t row_phase = 0;
  std::uint32_t col_phase = 0;
  std::uint32_t unit_rows = 1;
  std::uint32_t vectors = 0;
  block_divisor by_vectors = {};
  path_kind path = single;

  std::uint64_t units() const { return ceil_div(rows, unit_rows); }
};

/// Most rows and columns of a task: indices and offsets inside a unit are 32 bits wide.
inline constexpr std::int64_t most_dequant_extent = std::int64_t{1} << 28;

/// How many elements a unit of a launch of so many has.
inline std::int64_t dequant_unit_elements(std::int64_t elements, int blocks) {
  using choice = tuning::dequant_rows;
  return std::clamp<std::int64_t>(elements / (std::int64_t{blocks} * choice::balance_units), choice::least_unit_elements,
                                  choice::most_unit_elements);
}

/// The task of a job with at most `most_dequant_extent` rows and columns.
inline dequant_task make_task(const dequant_job& job, const dequant_key& key, std::int64_t unit_elements) {
  using choice = tuning::dequant_rows;
  const std::int64_t wide = choice::bytes_per_store / bytes_of(key.runtime);
  dequant_task task{.source = job.source,
                    .destination = job.destination,
                    .scale = job.scale,
                    .source_row_stride_bytes = job.source_row_stride_bytes,
                    .destination_row_stride_bytes = job.destination_row_stride_bytes,
                    .scale_row_stride_bytes = job.scale_row_stride_bytes,
                    .rows = static_cast<std::uint32_t>(job.rows),
                    .cols = static_cast<std::uint32_t>(job.cols),
                    .row_phase = static_cast<std::uint32_t>(job.row_phase),
                    .col_phase = static_cast<std::uint32_t>(job.col_phase)};
  const std::int64_t stride = std::max(std::abs(job.source_row_stride_bytes), job.destination_row_stride_bytes);
  const std::int64_t most_rows = std::clamp<std::int64_t>((std::int64_t{1} << 30) / (stride + 1), 1, choice::most_unit_rows);
  task.unit_rows = static_cast<std::uint32_t>(std::clamp<std::int64_t>(unit_elements / job.cols, 1, most_rows));
  const auto aligned = [&](const std::byte* first, std::int64_t stride, std::int64_t to) {
    return reinterpret_cast<std::uintptr_t>(first) % static_cast<std::uintptr_t>(to) == 0 &&
           (job.rows == 1 || stride % to == 0);
  };
  if (aligned(job.source, job.source_row_stride_bytes, wide) &&
      aligned(job.destination, job.destination_row_stride_bytes, choice::bytes_per_store) &&
      aligned(job.scale, job.scale_row_stride_bytes, bytes_of(key.scale))) {
    const bool one_scale = key.block_cols == 0 || (key.block_cols % wide == 0 && job.col_phase % wide == 0);
    task.path = one_scale ? dequant_task::wide_one_scale : dequant_task::wide;
  }
  task.vectors = static_cast<std::uint32_t>(task.path == dequant_task::single ? job.cols : job.cols / wide);
  task.by_vectors = block_divisor(task.vectors);
  return task;
}

}  // namespace kernel
}  // namespace wreload
