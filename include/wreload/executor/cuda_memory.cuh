#pragma once
/// `cuda_memory`: one allocation of device or pinned memory, counted in bytes.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda_call.cuh"

namespace wreload::detail {

/// Owns device memory, or pinned host memory that kernels read and write at the same address.
class cuda_memory {
 public:
  enum class kind { device, pinned };

  explicit cuda_memory(kind where) : where_(where) {}
  cuda_memory(const cuda_memory&) = delete;             // one owner
  cuda_memory& operator=(const cuda_memory&) = delete;
  ~cuda_memory() { release(); }

  status allocate(std::int64_t bytes) {
    release();
    if (bytes == 0) return {};
    void* made = nullptr;
    const auto size = static_cast<std::size_t>(bytes);
    if (where_ == kind::device) {
      if (status failed = cuda_status(cudaMalloc(&made, size), "cudaMalloc"); !failed.ok()) return failed;
    } else {
      const cudaError_t error = cudaHostAlloc(&made, size, cudaHostAllocPortable | cudaHostAllocMapped);
      if (status failed = cuda_status(error, "cudaHostAlloc"); !failed.ok()) return failed;
    }
    data_ = static_cast<std::byte*>(made);
    bytes_ = bytes;
    return {};
  }
  /// Gives the memory back. May wait for the device; no launch may still use it.
  void release() {
    if (data_ != nullptr) (void)(where_ == kind::device ? cudaFree(data_) : cudaFreeHost(data_));
    data_ = nullptr;
    bytes_ = 0;
  }

  std::byte* data() const { return data_; }
  std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(data_); }
  std::int64_t bytes() const { return bytes_; }

 private:
  kind where_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace wreload::detail
