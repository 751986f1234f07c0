#pragma once
/// `cuda_aside`: memory that updates keep bytes in until they commit, taken and given back while the device works.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "../core/tensor_ref.hpp"
#include "cuda_call.cuh"

namespace wreload::detail {

/// Blocks of device memory, from a pool of its own so that taking and giving back wait for no stream of the engine's
/// (as cudaMalloc and cudaFree may), or of pinned memory, which goes back once no launch is queued any more.
class cuda_aside {
 public:
  cuda_aside() = default;
  cuda_aside(const cuda_aside&) = delete;             // owns memory
  cuda_aside& operator=(const cuda_aside&) = delete;

  /// `stream` has only the library's own work. `drained`: no launch is queued.
  status allocate(std::int64_t bytes, memory_kind where, cudaStream_t stream, bool drained, std::byte** memory) {
    const std::lock_guard guard(lock_);
    if (drained) free_retired();
    blocks_.reserve(blocks_.size() + 1);  // who throws has taken nothing
    void* made = nullptr;
    const auto size = static_cast<std::size_t>(bytes);
    if (where != memory_kind::device) {
      const cudaError_t error = cudaHostAlloc(&made, size, cudaHostAllocPortable | cudaHostAllocMapped);
      if (status failed = cuda_status(error, "cudaHostAlloc"); !failed.ok()) return failed;
    } else {
      if (status failed = make_pool(); !failed.ok()) return failed;
      if (status failed = cuda_status(cudaMallocFromPoolAsync(&made, size, pool_, stream), "cudaMallocFromPoolAsync");
          !failed.ok())
        return failed;
      if (status failed = cuda_status(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); !failed.ok())
        return failed;
    }
    *memory = static_cast<std::byte*>(made);
    blocks_.push_back({*memory, bytes, where == memory_kind::device, false});
    return {};
  }

  /// Requires: no launch that could still run uses the block.
  void release(std::byte* memory, cudaStream_t stream, bool drained) {
    const std::lock_guard guard(lock_);
    for (block& each : blocks_) {
      if (each.data != memory) continue;
      each.retired = true;
      if (!each.on_device) continue;
      (void)cudaFreeAsync(each.data, stream);
      (void)cudaStreamSynchronize(stream);
      (void)cudaMemPoolTrimTo(pool_, 0);
      each.data = nullptr;
    }
    std::erase_if(blocks_, [](const block& each) { return each.data == nullptr; });
    if (drained) free_retired();
  }

  /// Gives everything back. Waits.
  void clear(cudaStream_t stream) {
    const std::lock_guard guard(lock_);
    for (block& each : blocks_) (void)(each.on_device ? cudaFreeAsync(each.data, stream) : cudaFreeHost(each.data));
    blocks_.clear();
    (void)cudaStreamSynchronize(stream);
    if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);
    pool_ = nullptr;
  }

  std::int64_t bytes() const {
    const std::lock_guard guard(lock_);
    std::int64_t sum = 0;
    for (const block& each : blocks_) sum += each.bytes;
    return sum;
  }

 private:
  struct block {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    bool on_device = false;
    bool retired = false;  ///< pinned, and waits for the queue to drain
  };

  status make_pool() {
    if (pool_ != nullptr) return {};
    cudaMemPoolProps kind = {};
    kind.allocType = cudaMemAllocationTypePinned;
    kind.location.type = cudaMemLocationTypeDevice;
    if (status failed = cuda_status(cudaGetDevice(&kind.location.id), "cudaGetDevice"); !failed.ok()) return failed;
    return cuda_status(cudaMemPoolCreate(&pool_, &kind), "cudaMemPoolCreate");
  }

  void free_retired() {
    std::erase_if(blocks_, [](const block& each) {
      if (each.retired) (void)cudaFreeHost(each.data);
      return each.retired;
    });
  }

  mutable std::mutex lock_ = {};
  cudaMemPool_t pool_ = nullptr;
  std::vector<block> blocks_ = {};
};

}  // namespace wreload::detail
