#pragma once
/// `source_window`: pinned memory that pageable sources pass through. `staged_sources`: those of one call.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "../core/box.hpp"
#include "../core/job.hpp"
#include "cuda_flight.cuh"
#include "cuda_lanes.cuh"
#include "cuda_memory.cuh"
#include "lent_memory.hpp"
#include "stage_rows.hpp"

namespace wreload::detail {

/// Lent to launches in pieces.
class source_window {
 public:
  explicit source_window(cuda_flight& flight) : flight_(flight) {}

  status reserve(std::int64_t bytes) {
    lent_.use(bytes);
    return memory_.allocate(bytes);
  }
  std::int64_t bytes() const { return memory_.bytes(); }
  /// Of one piece: a quarter of the window, so that the next pieces find room beside it.
  std::int64_t most_piece_bytes() const { return lent_.size() / 4 / 256 * 256; }

  /// Room until the launch is done. Waits where the window is full.
  status take(const cuda_lane& on, std::int64_t bytes, launch_id owner, std::byte*& memory) {
    std::int64_t offset = -1;
    if (status failed = flight_.lend(on, lent_, bytes, owner, offset); !failed.ok()) return failed;
    memory = memory_.data() + offset;
    return {};
  }
  const cuda_flight& flight() const { return flight_; }

 private:
  cuda_flight& flight_;
  cuda_memory memory_{cuda_memory::kind::pinned};
  lent_memory lent_ = {};
};

/// The pageable sources of one call, which the calling thread copies into the window. Rows that are staged belong to
/// the launch that lands them.
class staged_sources {
 public:
  staged_sources(source_window& window, const cuda_lane& on, std::span<const land_job> jobs)
      : window_(window), on_(on) {
    for (const land_job& job : jobs)
      if (job.memory == memory_kind::pageable) to_stage_ += job.rows * job.cols * bytes_of(job.from);
  }

  /// Whether kernels cannot: a source said to be pageable may be what CUDA knows as device or pinned memory.
  static bool is_read_by_host(const land_job& job) {
    if (job.memory != memory_kind::pageable) return false;
    cudaPointerAttributes found = {};
    if (cudaPointerGetAttributes(&found, job.source) == cudaSuccess) return found.type == cudaMemoryTypeUnregistered;
    (void)cudaGetLastError();
    return true;
  }

  /// Copies a job's source, piece by piece, and calls `land(job, part)` for each: a job of its own, and which rows and
  /// columns of the whole one it is. Waits where the window is full.
  ///
  ///   tasks     the batch that `land` adds a task to
  ///   expected  that task and those that may follow
  ///   flush     launches the batch, and others before it
  template <class Batch, class Land, class Flush>
  status stage(Batch& tasks, const land_job& job, std::size_t expected, Land&& land, Flush&& flush) {
    const std::int64_t most = window_.most_piece_bytes();
    if (most == 0)
      return refuse(error_code::execution_failed, {}, "window_bytes of 1024 or more for a pageable source",
                    std::to_string(window_.bytes()));
    const std::int64_t element = bytes_of(job.from);
    const std::int64_t cols = std::min(job.cols, most / element);
    const std::int64_t rows = cols == job.cols ? std::max<std::int64_t>(most / (cols * element), 1) : 1;
    for (std::int64_t r = 0; r < job.rows; r += rows)
      for (std::int64_t c = 0; c < job.cols; c += cols) {
        const rect part{r, std::min(job.rows, r + rows), c, std::min(job.cols, c + cols)};
        const std::int64_t bytes = part.elements() * element;
        if (holds_room_of(tasks.id()) && left_ < bytes)
          if (status failed = flush(); !failed.ok()) return failed;
        if (status failed = tasks.make_room(expected, flush); !failed.ok()) return failed;  // whose the rows will be
        if (!holds_room_of(tasks.id()) || left_ < bytes) {
          left_ = std::clamp(to_stage_ + 16 * static_cast<std::int64_t>(expected), bytes, most);
          owner_ = tasks.id();
          if (status failed = window_.take(on_, left_, owner_, at_); !failed.ok()) return failed;
        }
        if (status cancelled = window_.flight().check_live(on_); !cancelled.ok()) return cancelled;
        stage_rows(job, part, at_);
        if (status failed = land(staged_job(job, part, at_), part); !failed.ok()) return failed;
        const std::int64_t taken = std::min((bytes + 15) / 16 * 16, left_);
        at_ += taken;
        left_ -= taken;
        to_stage_ -= bytes;
      }
    return {};
  }

 private:
  bool holds_room_of(launch_id launch) const { return launch.record >= 0 && launch == owner_; }

  source_window& window_;
  const cuda_lane& on_;
  std::int64_t to_stage_ = 0;  ///< bytes, at most
  launch_id owner_ = {};       ///< of the room
  std::byte* at_ = nullptr;
  std::int64_t left_ = 0;
};

}  // namespace wreload::detail
