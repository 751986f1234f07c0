#pragma once
/// `cuda_derived`: what no source brings: pads, and scalars computed from others.

#include <cstddef>
#include <span>

#include "../core/job.hpp"
#include "../kernel/combine_scalars.cuh"
#include "../kernel/fill_rows.cuh"
#include "cuda_lanes.cuh"
#include "cuda_launcher.cuh"
#include "task_batch.cuh"

namespace wreload::detail {

/// A template so that kernels are compiled where it is used.
template <class Use>
class cuda_derived {
 public:
  explicit cuda_derived(cuda_launcher& launcher) : launcher_(launcher) {}

  static status preload() {
    return detail::preload(&kernel::fill_rows<tuning::fill_rows::block_threads>,
                           &kernel::combine_scalars<tuning::combine_scalars::block_threads>);
  }

  status fill(const cuda_lane& on, std::span<const fill_job> jobs) {
    return launch_each(on, tuning::fill_rows{}, &kernel::fill_rows<tuning::fill_rows::block_threads>, jobs,
                       [](const fill_job& job) { return job.rows > 0 && job.row_bytes > 0; });
  }

  status combine(const cuda_lane& on, std::span<const combine_job> jobs) {
    return launch_each(on, tuning::combine_scalars{}, &kernel::combine_scalars<tuning::combine_scalars::block_threads>,
                       jobs, [](const combine_job& job) { return job.count > 0; });
  }

 private:
  /// A task for each job that has anything to do.
  template <class Choice, class Task, class Job, class HasWork>
  status launch_each(const cuda_lane& on, const Choice& choice, void (*function)(kernel::work<Task>),
                     std::span<const Job> jobs, HasWork&& has_work) {
    task_batch tasks(launcher_, on, choice, function);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!has_work(jobs[i])) continue;
      if (status failed = tasks.add(kernel::make_task(jobs[i]), jobs.size() - i); !failed.ok()) return failed;
    }
    return tasks.flush();
  }

  cuda_launcher& launcher_;
};

}  // namespace wreload::detail
