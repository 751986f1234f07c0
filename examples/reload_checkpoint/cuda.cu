// The tool's CUDA half.

#include "cuda.hpp"

#include <cuda_runtime.h>

#include "device_memory_cuda.cuh"
#include "feed_cuda.cuh"
#include "run.hpp"

namespace reload {
namespace {

// Loads only where the device can run what this file was compiled for.
__global__ void probe() {}

}  // namespace

bool find_cuda(std::string& words) {
  int device = 0;
  cudaDeviceProp facts = {};
  cudaFuncAttributes ignored = {};
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&facts, device);
  if (error == cudaSuccess) words = std::string("cuda (") + facts.name + ")";
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&ignored, probe);
  if (error == cudaSuccess) return true;
  (void)cudaGetLastError();  // CUDA keeps it as the thread's last error
  words += (words.empty() ? "" : ": ") + std::string(cudaGetErrorString(error));
  return false;
}

wr::status run_on_cuda(const options& asked, summary& done) { return run<wr::cuda_executor>(asked, done); }

}  // namespace reload
