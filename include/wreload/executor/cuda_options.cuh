#pragma once
/// `cuda_options`: what a `cuda_executor` is made of.

#include <algorithm>
#include <cstdint>

#include "../kernel/dequant_task.cuh"
#include "../kernel/land_task.cuh"
#include "executor.hpp"

namespace wreload {

/// What a `cuda_executor` is made of; everything is allocated in `reserve`.
///
///   device        whose memory the tensors lie in; -1: the calling thread's current one
///   window_bytes  pinned memory through which pageable sources pass; 0: pageable sources are refused
///   table_bytes   device memory, and as much pinned memory, for task tables; 0: as much as an update in which every
///                 tensor comes whole can have in flight
///   plan_bytes    device memory for the tables of update plans (see update/bucket.hpp): 112 bytes a
///                 landing, less where it is converted on its way. 0: none, buckets load in the usual way
struct cuda_options {
  int device = -1;
  std::int64_t window_bytes = std::int64_t{16} << 20;
  std::int64_t table_bytes = 0;
  std::int64_t plan_bytes = 0;
};

namespace detail {

/// Bytes of one side of the task tables, a multiple of 256.
inline std::int64_t table_bytes_for(const cuda_options& options, const executor_needs& needs) {
  std::int64_t bytes = options.table_bytes;
  if (bytes == 0) {
    bytes = needs.dequant_jobs * std::int64_t{sizeof(kernel::dequant_task)} +
            needs.land_jobs * std::int64_t{sizeof(kernel::land_task)};
    bytes = std::clamp<std::int64_t>(bytes * 5 / 4, std::int64_t{256} << 10, std::int64_t{64} << 20);
  }
  return (std::max<std::int64_t>(bytes, 4096) + 255) / 256 * 256;
}

}  // namespace detail
}  // namespace wreload
