#pragma once
/// `stage_rows`: copies a part of a landing's source to dense rows, as pageable sources need.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/box.hpp"
#include "../core/job.hpp"

namespace wreload::detail {

/// Copies the elements of `part` (rows and columns of the job) to `to`, dense.
inline void stage_rows(const land_job& job, const rect& part, std::byte* to) {
  const std::int64_t element = bytes_of(job.from);
  const std::int64_t row_bytes = part.cols() * element;
  const std::byte* from =
      job.source + part.row_begin * job.source_row_stride_bytes + part.col_begin * job.source_col_stride_bytes;
  if (part.cols() == 1 || job.source_col_stride_bytes == element) {
    const bool one_run = job.source_row_stride_bytes == row_bytes;
    for (std::int64_t r = 0; r < (one_run ? 1 : part.rows()); ++r)
      std::memcpy(to + r * row_bytes, from + r * job.source_row_stride_bytes,
                  static_cast<std::size_t>(one_run ? row_bytes * part.rows() : row_bytes));
    return;
  }
  for (std::int64_t r = 0; r < part.rows(); ++r)
    for (std::int64_t c = 0; c < part.cols(); ++c)
      std::memcpy(to + r * row_bytes + c * element,
                  from + r * job.source_row_stride_bytes + c * job.source_col_stride_bytes,
                  static_cast<std::size_t>(element));
}

/// The job that lands a staged part.
inline land_job staged_job(const land_job& job, const rect& part, const std::byte* staged) {
  land_job landed = job;
  landed.source = staged;
  if (job.map == unmapped) {
    landed.destination += part.row_begin * job.destination_row_stride_bytes + part.col_begin * bytes_of(job.to);
  } else {
    landed.map_row += part.row_begin;
    landed.map_col += part.col_begin;
  }
  landed.rows = part.rows();
  landed.cols = part.cols();
  landed.source_col_stride_bytes = bytes_of(job.from);
  landed.source_row_stride_bytes = part.cols() * landed.source_col_stride_bytes;
  landed.memory = memory_kind::pinned;
  return landed;
}

}  // namespace wreload::detail
