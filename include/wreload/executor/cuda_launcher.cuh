#pragma once
/// `cuda_launcher`: launches kernels over tasks, which lie in tables.

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../kernel/work.cuh"
#include "cuda_call.cuh"
#include "cuda_flight.cuh"
#include "cuda_lanes.cuh"
#include "cuda_memory.cuh"
#include "cuda_table.cuh"
#include "lent_memory.hpp"

namespace wreload::detail {

/// Pinned memory, in which the host writes, and as much of the device, which kernels read. Both are lent to launches in
/// pieces; a piece has one offset in both.
class task_tables {
 public:
  explicit task_tables(cuda_flight& flight) : flight_(flight) {}

  status reserve(std::int64_t bytes) {
    if (status failed = host_.allocate(bytes); !failed.ok()) return failed;
    if (status failed = device_.allocate(bytes); !failed.ok()) return failed;
    lent_.use(bytes);
    return {};
  }
  /// Bytes of one side.
  std::int64_t size() const { return lent_.size(); }

  /// The offset of a piece until the launch is done; -1 where there is none now.
  std::int64_t try_take(std::int64_t bytes, launch_id owner) { return flight_.try_lend(lent_, bytes, owner); }
  /// The same, but waits for one.
  status take(const cuda_lane& on, std::int64_t bytes, launch_id owner, std::int64_t& offset) {
    return flight_.lend(on, lent_, bytes, owner, offset);
  }
  std::byte* host(std::int64_t offset) const { return host_.data() + offset; }
  std::byte* device(std::int64_t offset) const { return device_.data() + offset; }

 private:
  cuda_flight& flight_;
  cuda_memory host_{cuda_memory::kind::pinned};
  cuda_memory device_{cuda_memory::kind::device};
  lent_memory lent_ = {};
};

/// Loads the code of kernels, which CUDA otherwise does at their first launch, allocating device memory.
template <class... Kernels>
status preload(Kernels*... functions) {
  status failed;
  const auto load = [&failed](auto* function) {
    if (failed.ok()) failed = cuda_status(kernel::preload(function), "cudaFuncGetAttributes");
  };
  (load(functions), ...);
  return failed;
}

/// Makes launches on lanes: each with a gate of its own, kept where the lane says so, and counted.
class cuda_launcher {
 public:
  explicit cuda_launcher(cuda_flight& flight) : flight_(flight), tables_(flight), kept_(flight) {}

  /// Bytes of one side of the tables; of kept tasks.
  status reserve(std::int64_t table_bytes, std::int64_t kept_bytes) {
    if (status failed = tables_.reserve(table_bytes); !failed.ok()) return failed;
    if (status failed = kept_.reserve(kept_bytes); !failed.ok()) return failed;
    return cuda_status(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, flight_.device()),
                       "cudaDeviceGetAttribute");
  }
  std::int64_t bytes() const { return 2 * tables_.size() + kept_.bytes(); }

  cuda_flight& flight() const { return flight_; }
  task_tables& tables() { return tables_; }
  kept_tasks& kept() { return kept_; }
  const kept_tasks& kept() const { return kept_; }
  std::int64_t launches() const { return launches_.load(std::memory_order_relaxed); }

  /// Blocks that the device runs at a time.
  template <class Choice>
  int most_blocks() const {
    return multiprocessors_ * Choice::blocks_per_multiprocessor;
  }

  /// Copies tasks that the host wrote at `offset` of the tables to where the launch finds them, and, where it is kept, a
  /// later one.
  template <class Task>
  status upload(const cuda_lane& on, std::int64_t offset, kernel::work<Task>& todo) {
    const std::size_t bytes = todo.count * sizeof(Task);
    std::byte* kept = on.kept == nullptr ? nullptr : kept_.take(*on.kept, bytes);
    auto* device = reinterpret_cast<Task*>(kept != nullptr ? kept : tables_.device(offset));
    todo.tasks = device;
    return copy_async(device, tables_.host(offset), bytes, on.stream());
  }

  template <class Choice, class Task, class... Parameters>
  status launch(const cuda_lane& on, launch_record& record, void (*function)(kernel::work<Task>, Parameters...),
                kernel::work<Task>& todo, const Parameters&... parameters) {
    todo.gate = flight_.gate_of(on, record.id());
    constexpr std::uint32_t units_per_block = Choice::units_per_block;
    const auto most = static_cast<std::uint32_t>(most_blocks<Choice>());
    const std::uint32_t blocks = std::min((todo.units + units_per_block - 1) / units_per_block, most);
    const cudaError_t error =
        kernel::launch(function, blocks, Choice::block_threads, on.stream(), todo, parameters...);
    if (status failed = finish(record, error); !failed.ok()) return failed;
    if (on.kept != nullptr && on.kept->whole)
      on.kept->add(function, blocks, Choice::block_threads, todo, parameters...);
    return {};
  }

  /// Kept launches, with gates of their own; `shift` bytes are added to the sources.
  status launch_again(const cuda_lane& on, const cuda_table& kept, std::ptrdiff_t shift) {
    for (const cuda_table::launch& each : kept.launches)
      if (status failed = launch_again(on, each, shift); !failed.ok()) return failed;
    return {};
  }

 private:
  status launch_again(const cuda_lane& on, const cuda_table::launch& kept, std::ptrdiff_t shift) {
    launch_record record(flight_);
    if (status failed = record.take(on); !failed.ok()) return failed;
    alignas(16) std::byte todo[cuda_table::parameter_bytes];  // what lies behind the kept bytes is not read
    std::memcpy(todo, kept.todo.data(), kept.todo.size());
    const kernel::gate gate = flight_.gate_of(on, record.id());
    std::memcpy(todo, &gate, sizeof gate);
    std::memcpy(todo + sizeof gate, &shift, sizeof shift);
    const void* arguments[] = {todo, kept.parameter.data()};
    const cudaError_t error = cudaLaunchKernel(kept.function, dim3(kept.blocks), dim3(kept.threads),
                                               const_cast<void**>(arguments), 0, on.stream());
    return finish(record, error);
  }

  status finish(launch_record& record, cudaError_t error) {
    if (status failed = cuda_status(error, "cudaLaunchKernel"); !failed.ok()) return failed;
    record.hand_over();
    launches_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }

  cuda_flight& flight_;
  task_tables tables_;
  kept_tasks kept_;
  int multiprocessors_ = 0;
  std::atomic<std::int64_t> launches_ = 0;
};

}  // namespace wreload::detail
