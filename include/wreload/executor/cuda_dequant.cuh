#pragma once
/// `cuda_dequant`: conversions of FP8 on a lane, a kernel per combination of dtypes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "../core/job.hpp"
#include "../kernel/dequant_rows.cuh"
#include "../kernel/dequant_task.cuh"
#include "../numerics/visit.hpp"
#include "cuda_lanes.cuh"
#include "cuda_launcher.cuh"
#include "task_batch.cuh"

namespace wreload::detail {

/// A template so that kernels are compiled where it is used.
template <class Use>
class cuda_dequant {
 public:
  explicit cuda_dequant(cuda_launcher& launcher) : launcher_(launcher) {}

  /// Requires: a key that `dequantises` knows
  status convert(const cuda_lane& on, const dequant_key& key, std::span<const dequant_job> jobs) {
    status result;
    visit_dequant(key.stored, key.runtime, key.scale, [&](auto stored, auto runtime, auto scale) {
      result = convert(on, key, jobs, &kernel::dequant_rows<decltype(stored), decltype(runtime), decltype(scale)>);
    });
    return result;
  }

  /// Loads the kernel of a key; nothing where there is none.
  static status preload(const dequant_key& key) {
    status failed;
    visit_dequant(key.stored, key.runtime, key.scale, [&](auto stored, auto runtime, auto scale) {
      failed = detail::preload(&kernel::dequant_rows<decltype(stored), decltype(runtime), decltype(scale)>);
    });
    return failed;
  }

 private:
  using choice = tuning::dequant_rows;

  template <class Kernel>
  status convert(const cuda_lane& on, const dequant_key& key, std::span<const dequant_job> jobs, Kernel* function) {
    const kernel::dequant_blocks blocks{kernel::block_divisor(static_cast<std::uint32_t>(key.block_rows)),
                                        kernel::block_divisor(static_cast<std::uint32_t>(key.block_cols))};
    task_batch tasks(launcher_, on, choice{}, function, blocks);
    constexpr std::int64_t most = kernel::most_dequant_extent;
    std::int64_t elements = 0;
    for (const dequant_job& job : jobs) elements += job.rows * job.cols;
    const std::int64_t unit = kernel::dequant_unit_elements(elements, launcher_.template most_blocks<choice>());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const dequant_job& job = jobs[i];
      if (job.rows <= 0 || job.cols <= 0) continue;
      if (job.cols > most || key.block_rows > most || key.block_cols > most)
        return refuse(error_code::unsupported, {}, "at most 2^28 columns and rows a block", std::to_string(job.cols));
      for (std::int64_t row = 0; row < job.rows; row += most) {
        const dequant_job part = rows_of(job, row, std::min(job.rows - row, most), key);
        if (status failed = tasks.add(kernel::make_task(part, key, unit), jobs.size() - i); !failed.ok()) return failed;
      }
    }
    return tasks.flush();
  }

  /// Rows [first, first + count) of a job.
  static dequant_job rows_of(const dequant_job& job, std::int64_t first, std::int64_t count, const dequant_key& key) {
    dequant_job part = job;
    part.rows = count;
    part.source += first * job.source_row_stride_bytes;
    part.destination += first * job.destination_row_stride_bytes;
    if (key.block_rows > 0) {
      part.scale += (job.row_phase + first) / key.block_rows * job.scale_row_stride_bytes;
      part.row_phase = static_cast<std::int32_t>((job.row_phase + first) % key.block_rows);
    }
    return part;
  }

  cuda_launcher& launcher_;
};

}  // namespace wreload::detail
