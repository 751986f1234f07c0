#pragma once
/// `cuda_answers`: what the host asks kernels about bytes: digests, and where two tensors differ first.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "../core/job.hpp"
#include "../kernel/digest_tiles.cuh"
#include "../kernel/first_difference.cuh"
#include "cuda_call.cuh"
#include "cuda_flight.cuh"
#include "cuda_lanes.cuh"
#include "cuda_launcher.cuh"
#include "cuda_maps.cuh"
#include "digest_grid.hpp"
#include "task_batch.cuh"

namespace wreload::detail {

/// Each call waits for its answer. A template so that kernels are compiled where it is used.
template <class Use>
class cuda_answers {
 public:
  cuda_answers(cuda_launcher& launcher, const cuda_maps& maps) : launcher_(launcher), maps_(maps) {}

  static status preload() {
    return detail::preload(&kernel::digest_tiles<tuning::digest_tiles::block_threads>,
                           &kernel::first_difference<tuning::first_difference::block_threads>);
  }

  /// Sums of the tiles that jobs touch, one job's after the other's.
  status digest(const cuda_lane& on, std::span<const digest_job> jobs, std::span<std::uint64_t> sums) {
    position next;
    while (next.job < jobs.size()) {
      if (status refused = launcher_.flight().check(on); !refused.ok()) return refused;
      const std::int64_t tiles = std::min(most_sums(), static_cast<std::int64_t>(sums.size()));
      if (tiles == 0) return {};
      words found(launcher_, on);
      if (status failed = found.take(tiles); !failed.ok()) return failed;
      const auto bytes = static_cast<std::size_t>(tiles) * sizeof(std::uint64_t);
      if (status failed = cuda_status(cudaMemsetAsync(found.device(), 0, bytes, on.stream()), "cudaMemsetAsync");
          !failed.ok())
        return failed;
      std::int64_t taken = 0;
      if (status failed = add_up(on, jobs, next, found.device(), tiles, taken); !failed.ok()) return failed;
      if (taken == 0) continue;
      if (status failed = found.read(taken); !failed.ok()) return failed;
      const auto filled = static_cast<std::size_t>(taken);
      std::memcpy(sums.data(), found.host(), filled * sizeof(std::uint64_t));
      sums = sums.subspan(filled);
    }
    return {};
  }

  /// As row * row_bytes + offset; -1: none.
  status first_difference(const cuda_lane& on, const difference_job& pair, std::int64_t* first) {
    words found(launcher_, on);
    if (status failed = found.take(1); !failed.ok()) return failed;
    constexpr std::uint64_t none = ~std::uint64_t{0};
    *found.host() = none;
    if (status failed = copy_async(found.device(), found.host(), sizeof none, on.stream()); !failed.ok()) return failed;
    task_batch tasks(launcher_, on, tuning::first_difference{},
                     &kernel::first_difference<tuning::first_difference::block_threads>,
                     reinterpret_cast<unsigned long long*>(found.device()));
    if (status failed = tasks.add(kernel::make_task(pair), 1); !failed.ok()) return failed;
    if (status failed = tasks.flush(); !failed.ok()) return failed;
    if (status failed = found.read(1); !failed.ok()) return failed;
    *first = *found.host() == none ? -1 : static_cast<std::int64_t>(*found.host());
    return {};
  }

 private:
  /// Where what is left of a list of jobs begins: at this element of this job, the first of a tile.
  struct position {
    std::size_t job = 0;
    std::int64_t row = 0, col = 0;
  };

  /// Words that kernels write and the host reads: a piece of the tables, until the lane's stream has done what it was
  /// given while this lived. (A cancel ends the host's wait, but not the copies and fills that are queued.)
  class words {
   public:
    words(cuda_launcher& launcher, const cuda_lane& on) : launcher_(launcher), on_(on), record_(launcher.flight()) {}
    words(const words&) = delete;             // one piece
    words& operator=(const words&) = delete;
    ~words() {
      if (offset_ >= 0 && !is_read_) record_.end_behind(on_);
    }

    /// May wait.
    status take(std::int64_t count) {
      if (status failed = record_.take(on_); !failed.ok()) return failed;
      return launcher_.tables().take(on_, count * std::int64_t{sizeof(std::uint64_t)}, record_.id(), offset_);
    }
    std::uint64_t* host() const { return reinterpret_cast<std::uint64_t*>(launcher_.tables().host(offset_)); }
    std::uint64_t* device() const { return reinterpret_cast<std::uint64_t*>(launcher_.tables().device(offset_)); }
    /// Brings the first words to the host, when all else is enqueued. Waits.
    status read(std::int64_t count) {
      const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(std::uint64_t);
      if (status failed = copy_async(host(), device(), bytes, on_.stream()); !failed.ok()) return failed;
      const status failed = launcher_.flight().wait(on_);
      is_read_ = failed.ok();
      return failed;
    }

   private:
    cuda_launcher& launcher_;
    const cuda_lane& on_;
    launch_record record_;
    std::int64_t offset_ = -1;
    bool is_read_ = false;
  };

  /// A sixteenth of the tables for sums, of which a job may have many; a quarter for the tasks of a launch, so that the
  /// next one finds room beside it.
  std::int64_t most_sums() const {
    return std::max<std::int64_t>(launcher_.tables().size() / 16 / std::int64_t{sizeof(std::uint64_t)}, 16);
  }
  std::size_t most_tasks() const {
    return static_cast<std::size_t>(launcher_.tables().size() / 4 / std::int64_t{sizeof(kernel::digest_task)});
  }

  /// Enqueues the next tiles, `most` at most; counts them in `taken`.
  status add_up(const cuda_lane& on, std::span<const digest_job> jobs, position& next, std::uint64_t* sums,
                std::int64_t most, std::int64_t& taken) {
    task_batch tasks(launcher_, on, tuning::digest_tiles{}, &kernel::digest_tiles<tuning::digest_tiles::block_threads>);
    while (next.job < jobs.size() && taken < most) {
      const tile_run run = next_tiles(jobs[next.job], next.row, next.col, most - taken);
      if (run.tiles > 0) {
        const kernel::digest_task task =
            kernel::make_task(run.part, maps_.host(run.part.map), maps_.device(run.part.map), sums + taken,
                              digest_grid_of(run.part).across);
        const std::size_t left = std::min(jobs.size() - next.job, most_tasks());
        if (status failed = tasks.add(task, left); !failed.ok()) return failed;
      }
      taken += run.tiles;
      next = run.is_last ? position{next.job + 1} : position{next.job, run.row, run.col};
    }
    return tasks.flush();
  }

  cuda_launcher& launcher_;
  const cuda_maps& maps_;
};

}  // namespace wreload::detail
