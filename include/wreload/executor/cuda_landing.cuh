#pragma once
/// `cuda_landing`: lands jobs, from sources that kernels read where they lie or that pass through the window.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "../core/box.hpp"
#include "../core/job.hpp"
#include "../kernel/digest_tiles.cuh"
#include "../kernel/land_rows.cuh"
#include "cuda_lanes.cuh"
#include "cuda_launcher.cuh"
#include "cuda_maps.cuh"
#include "cuda_table.cuh"
#include "digest_grid.hpp"
#include "source_window.cuh"
#include "task_batch.cuh"

namespace wreload::detail {

/// A template so that kernels are compiled where it is used.
///
///   flags  pinned words that `compare` sets
template <class Use>
class cuda_landing {
 public:
  cuda_landing(cuda_launcher& launcher, const cuda_maps& maps, source_window& window, std::uint32_t* flags)
      : launcher_(launcher), maps_(maps), window_(window), flags_(flags) {}

  static status preload() {
    return detail::preload(&kernel::land_rows<kernel::write_sink>, &kernel::land_rows<kernel::compare_sink>);
  }

  status land(const cuda_lane& on, std::span<const land_job> jobs) {
    return put<kernel::write_sink>(on, jobs, [](std::size_t) { return 0; });
  }

  status compare(const cuda_lane& on, std::span<const land_job> jobs, std::span<const std::int32_t> flags) {
    return put<kernel::compare_sink>(on, jobs, [flags](std::size_t i) { return flags[i]; });
  }

  /// Lands, and digests the sources: in one pass where the digest's kernel can land what it reads.
  status land_digested(const cuda_lane& on, std::span<const land_job> jobs, std::span<const land_digest> into) {
    auto landings = batch_of<kernel::write_sink>(on);
    task_batch digests(launcher_, on, tuning::digest_tiles{},
                       &kernel::digest_tiles<tuning::digest_tiles::block_threads>);
    // First what reads sources again: the window that a landing holds is free once that has run.
    const auto flush = [&] {
      status failed = digests.flush();
      return failed.ok() ? landings.flush() : failed;
    };
    staged_sources staged(window_, on, jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (jobs[i].rows <= 0 || jobs[i].cols <= 0) continue;
      const std::size_t left = std::min(jobs.size() - i, most_tasks_beside_others());
      const auto land = [&](const land_job& job, const land_digest& where, bool is_staged) {
        kernel::digest_task task =
            kernel::make_task(digest_of_source(job, where), static_cast<const storage_map*>(nullptr), nullptr,
                              where.sums + first_sum(where), where.tiles_across);
        const storage_map* map = maps_.host(job.map);
        const bool lands = !is_staged && !where.is_transposed &&
                           kernel::land_with(task, job, map, maps_.device(job.map));
        if (status failed = digests.add(task, left); lands || !failed.ok()) return failed;
        return landings.add(kernel::make_task(job, map, maps_.device(job.map)), left, flush);
      };
      const auto land_staged = [&](const land_job& job, const rect& part) {
        land_digest where = into[i];
        where.row += where.is_transposed ? part.col_begin : part.row_begin;
        where.col += where.is_transposed ? part.row_begin : part.col_begin;
        return land(job, where, true);
      };
      const status failed = staged.is_read_by_host(jobs[i])
                                ? staged.stage(landings, jobs[i], left, land_staged, flush)
                                : land(jobs[i], into[i], false);
      if (!failed.ok()) return failed;
    }
    return flush();
  }

 private:
  template <class Sink>
  auto batch_of(const cuda_lane& on) {
    return task_batch(launcher_, on, tuning::land_rows{}, &kernel::land_rows<Sink>, flags_);
  }

  /// A quarter of the tables for the tasks of a launch: two kinds of them are filled side by side.
  std::size_t most_tasks_beside_others() const {
    constexpr std::int64_t most_task_bytes = std::max(sizeof(kernel::land_task), sizeof(kernel::digest_task));
    return static_cast<std::size_t>(launcher_.tables().size() / 4 / most_task_bytes);
  }

  /// Lands or compares, per `Sink`. `flag_of(i)`: job i's flag.
  template <class Sink, class FlagOf>
  status put(const cuda_lane& on, std::span<const land_job> jobs, FlagOf&& flag_of) {
    const auto is_pageable = [](const land_job& job) { return job.memory == memory_kind::pageable; };
    if (on.kept != nullptr && std::any_of(jobs.begin(), jobs.end(), is_pageable)) on.kept->whole = false;
    auto tasks = batch_of<Sink>(on);
    staged_sources staged(window_, on, jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (jobs[i].rows <= 0 || jobs[i].cols <= 0) continue;
      const std::size_t left = jobs.size() - i;
      const auto land = [&](const land_job& job, const rect& = {}) {
        kernel::land_task task = kernel::make_task(job, maps_.host(job.map), maps_.device(job.map));
        task.flag = flag_of(i);
        return tasks.add(task, left);
      };
      const status failed = staged.is_read_by_host(jobs[i])
                                ? staged.stage(tasks, jobs[i], left, land, [&] { return tasks.flush(); })
                                : land(jobs[i]);
      if (!failed.ok()) return failed;
    }
    return tasks.flush();
  }

  cuda_launcher& launcher_;
  const cuda_maps& maps_;
  source_window& window_;
  std::uint32_t* flags_;
};

}  // namespace wreload::detail
