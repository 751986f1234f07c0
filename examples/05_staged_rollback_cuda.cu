// 05_staged_rollback.cpp on a GPU: the same source, another executor and an arena of device pages. Exit 77 where there is
// no GPU.

#include <cuda_runtime.h>

#include <wreload/wreload.cuh>

#include <cstdio>
#include <cstdlib>

using executor = wreload::cuda_executor;

inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  const bool absent = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver;
  std::printf("%s%s\n", absent ? "skipped: " : "", cudaGetErrorString(error));
  std::exit(absent ? 77 : 1);
}

inline void find_device() { check(cudaFree(nullptr)); }

// What a kernel of the engine would see.
template <class T>
T read(const T* data) {
  T value = {};
  check(cudaMemcpy(&value, data, sizeof(T), cudaMemcpyDeviceToHost));
  return value;
}

#define WRELOAD_EXAMPLE_ON_CUDA
#include "05_staged_rollback.cpp"
