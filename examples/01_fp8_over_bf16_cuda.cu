// 01_fp8_over_bf16.cpp on a GPU: the same source, another executor and device memory. Exit 77 where there is no GPU.

#include <cuda_runtime.h>

#include <wreload/wreload.cuh>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

using executor = wreload::cuda_executor;

inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  const bool absent = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver;
  std::printf("%s%s\n", absent ? "skipped: " : "", cudaGetErrorString(error));
  std::exit(absent ? 77 : 1);
}

// `size` zeroed elements of device memory.
template <class T>
class buffer {
 public:
  explicit buffer(std::size_t size) : size_(size) {
    check(cudaMalloc(&data_, size * sizeof(T)));
    check(cudaMemset(data_, 0, size * sizeof(T)));
    check(cudaDeviceSynchronize());
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  ~buffer() { (void)cudaFree(data_); }

  T* data() { return data_; }
  T front() const { return at(0); }
  T back() const { return at(size_ - 1); }

 private:
  T at(std::size_t i) const {
    T value = {};
    check(cudaMemcpy(&value, data_ + i, sizeof(T), cudaMemcpyDeviceToHost));
    return value;
  }

  std::size_t size_;
  T* data_ = nullptr;
};

#define WRELOAD_EXAMPLE_ON_CUDA
#include "01_fp8_over_bf16.cpp"
