#pragma once
/// Parts of a param that come in the order that kernels read: what of the matrix they hold, and how they are copied.

#include <algorithm>
#include <cstdint>

#include "../core/box.hpp"
#include "../core/job.hpp"
#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "../core/storage_map.hpp"
#include "../layout/landing.hpp"
#include "piece.hpp"
#include "records.hpp"

namespace wreload::detail {

/// Calls `visit(rect)`, in the matrix form before the map, for what a part of the matrix in kernel order holds: runs
/// of rows of one slot, ascending.
template <class Visit>
void for_each_held(const planned_param& plan, const rect& part, Visit&& visit) {
  // Shuffles stay inside 32 rows; steps with halves do not.
  bool is_near = true;
  for (const row_step& step : plan.map.steps) is_near &= step.half_rows == 0;
  for (std::int64_t row = part.row_begin; row < part.row_end;) {
    const std::int64_t slot = row / plan.slot_storage_rows, slot_begin = slot * plan.slot_storage_rows;
    const std::int64_t row_end = std::min(part.row_end, slot_begin + plan.slot_storage_rows);
    rect kept{row - slot_begin, row_end - slot_begin, part.col_begin, part.col_end};  // rows as the steps leave them
    if (plan.map.mn_major_bytes != 0) kept = {kept.col_begin, kept.col_end, kept.row_begin, kept.row_end};
    row = row_end;
    const std::int64_t first = is_near ? kept.row_begin / 32 * 32 : 0;
    const std::int64_t last = is_near ? std::min(ceil_div(kept.row_end, 32) * 32, plan.slot_rows) : plan.slot_rows;
    const bool is_whole = kept.row_begin == first && kept.row_end == last;
    const auto is_held = [&](std::int64_t r) {
      const std::int64_t to = map_row(plan.map, r);
      return kept.row_begin <= to && to < kept.row_end;
    };
    for (std::int64_t begin = first; begin < last;) {
      std::int64_t end = is_whole ? last : begin;
      while (end < last && is_held(end)) ++end;
      if (begin < end)
        visit(rect{slot * plan.slot_rows + begin, slot * plan.slot_rows + end, kept.col_begin, kept.col_end});
      begin = end + 1;
    }
  }
}

/// What a run of a tensor in kernel order must be, so that its bytes can be copied as they are.
template <class = on_use>
status check_order(const param_record& param, const piece_run& run, const box& part) {
  if (!param.plan.map.swizzled) return {};
  const rect& cut = run.part;
  if ((cut.row_begin | cut.row_end) % 128 != 0 || (cut.col_begin | cut.col_end) % 4 != 0)
    return refuse(error_code::unsupported, param.name(), "a part cut on 128 rows and 4 columns (Swizzle128x4)",
                  to_string(part));
  if (run.col_stride_bytes != 1 || run.row_stride_bytes != cut.cols())
    return refuse(error_code::unsupported, param.name(), "dense bytes in 128x4 order (Swizzle128x4)",
                  "a strided tensor");
  return {};
}

/// The job that copies a run of a tensor in kernel order as it is. A swizzled one is [rows / 128, cols * 128] bytes,
/// whatever part of the param's columns it has.
template <class = on_use>
land_job copy_job(const param_record& param, const piece_run& run) {
  const rect& part = run.part;
  const dtype type = param.plan.spec.runtime;
  land_job job{.source = run.source,
               .destination = param.row(part.row_begin) + part.col_begin * bytes_of(type),
               .rows = part.rows(),
               .cols = part.cols(),
               .source_row_stride_bytes = run.row_stride_bytes,
               .source_col_stride_bytes = run.col_stride_bytes,
               .destination_row_stride_bytes = param.row_stride_bytes,
               .from = type,
               .to = type,
               .memory = run.memory};
  if (!param.plan.map.swizzled) return job;
  job.destination = param.row(part.row_begin) + part.col_begin * 128;
  job.rows /= 128;
  job.cols *= 128;
  job.source_row_stride_bytes *= 128;
  job.destination_row_stride_bytes *= 128;
  return job;
}

}  // namespace wreload::detail
