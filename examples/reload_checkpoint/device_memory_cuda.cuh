#pragma once
// Memory for runtime tensors on a GPU: plain allocations of the current device.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <wreload/wreload.cuh>

#include "device_memory.hpp"

namespace reload {

template <>
class device_memory<wr::cuda_executor> {
 public:
  explicit device_memory(std::byte fill) : fill_(fill) {}

  // Null for zero bytes. Waits until the memory is filled.
  wr::status allocate(std::int64_t bytes, std::byte** data) {
    *data = nullptr;
    if (bytes == 0) return {};
    void* made = nullptr;
    if (wr::status failed = checked(cudaMalloc(&made, static_cast<std::size_t>(bytes)), bytes); !failed.ok())
      return failed;
    *data = static_cast<std::byte*>(made);
    blocks_.emplace_back(*data);
    return fill(*data, bytes);
  }

  // Fresh bytes that were taken elsewhere. Waits: an update's stream need not wait for the one that fills.
  wr::status fill(std::byte* data, std::int64_t bytes) const {
    const cudaError_t error =
        cudaMemsetAsync(data, std::to_integer<int>(fill_), static_cast<std::size_t>(bytes), nullptr);
    if (wr::status failed = checked(error, bytes); !failed.ok()) return failed;
    return checked(cudaStreamSynchronize(nullptr), bytes);
  }

 private:
  struct release {
    void operator()(std::byte* data) const { (void)cudaFree(data); }
  };

  static wr::status checked(cudaError_t error, std::int64_t bytes) {
    if (error == cudaSuccess) return {};
    (void)cudaGetLastError();  // CUDA keeps it as the thread's last error
    return wr::refuse(
        error == cudaErrorMemoryAllocation ? wr::error_code::out_of_memory : wr::error_code::execution_failed, {},
        std::to_string(bytes) + " bytes of device memory", cudaGetErrorString(error));
  }

  std::byte fill_;
  std::vector<std::unique_ptr<std::byte, release>> blocks_ = {};
};

static_assert(has_device_memory<wr::cuda_executor>);

}  // namespace reload
