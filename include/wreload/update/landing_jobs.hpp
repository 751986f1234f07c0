#pragma once
/// The jobs that land a rectangle of a param: a param's map may ask for more than one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../core/box.hpp"
#include "../core/job.hpp"
#include "../core/storage_map.hpp"
#include "../layout/landing.hpp"
#include "records.hpp"

namespace wreload::detail {

/// Appends what lands a rectangle of a param's matrix form (of one slot where it is mapped); `job` says from where.
template <class Jobs>
void append_landing(land_job job, const param_record& param, const rect& local, Jobs& jobs) {
  const storage_map& map = param.plan.map;
  job.rows = local.rows();
  job.cols = local.cols();
  job.destination_row_stride_bytes = param.row_stride_bytes;
  if (param.map == unmapped) {
    job.destination = param.row(local.row_begin) + local.col_begin * bytes_of(job.to);
    jobs.push_back(job);
    return;
  }
  job.destination = param.slot_of(local.row_begin);
  if (map.mn_major_bytes == 0) {
    job.map = param.map;
    job.map_row = local.row_begin % param.plan.slot_rows;
    job.map_col = local.col_begin;
    jobs.push_back(job);
    return;
  }
  // Rows that stay neighbours are columns of the transpose.
  const std::byte* source = job.source;
  std::byte* slot = job.destination + local.col_begin * param.row_stride_bytes;
  std::swap(job.source_row_stride_bytes, job.source_col_stride_bytes);
  job.rows = local.cols();
  const std::int64_t first = local.row_begin % param.plan.slot_rows, last = first + local.rows();
  for (std::int64_t row = first; row < last; row += job.cols) {
    const std::int64_t to = map_row(map, row);
    job.cols = 1;
    while (row + job.cols < last && map_row(map, row + job.cols) == to + job.cols) ++job.cols;
    job.source = source + (row - first) * job.source_col_stride_bytes;
    job.destination = slot + to * map.mn_major_bytes;
    jobs.push_back(job);
  }
}

inline rect rect_of(const planned_pad& pad) {
  return {pad.local_row, pad.local_row + pad.rows, pad.local_col, pad.local_col + pad.cols};
}

/// Appends landings of zeros, a slot at a time.
template <class Jobs>
void append_zeros(const param_record& param, const rect& local, Jobs& jobs) {
  static constexpr std::byte zeros[8] = {};
  if (param.plan.bytes() == 0 || local.empty()) return;  // maybe no storage
  const land_job job{.source = zeros, .from = param.plan.spec.runtime, .to = param.plan.spec.runtime};
  for (std::int64_t row = local.row_begin; row < local.row_end;) {
    const std::int64_t end = std::min(local.row_end, (row / param.plan.slot_rows + 1) * param.plan.slot_rows);
    append_landing(job, param, {row, end, local.col_begin, local.col_end}, jobs);
    row = end;
  }
}

/// The jobs that write a param's pads: landings of zeros.
template <class Jobs>
void append_pads(const param_record& param, Jobs& jobs) {
  for (const planned_pad& pad : param.plan.pads) append_zeros(param, rect_of(pad), jobs);
}

}  // namespace wreload::detail
