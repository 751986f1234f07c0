#pragma once
/// What the CUDA benchmarks share: checked calls, device memory, event timing behind a full queue, medians, random data, a table that is
/// also one line of JSON.

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace bench {

inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
  std::exit(1);
}
#define BENCH_CUDA(call) ::bench::check((call), #call)

/// Whether there is a GPU; says so where there is none (exit 77 then).
inline bool has_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return true;
  std::printf("no CUDA device: nothing was measured\n");
  return false;
}

/// Ends the program where a status of the library's is an error.
template <class Status>
void demand(const Status& result) {
  if (result.ok()) return;
  std::fprintf(stderr, "%s\n", result.message().c_str());
  std::exit(1);
}

template <class Element>
Element* device_array(std::int64_t count) {
  void* made = nullptr;
  BENCH_CUDA(cudaMalloc(&made, static_cast<std::size_t>(count) * sizeof(Element)));
  return static_cast<Element*>(made);
}

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

namespace {

/// Keeps the stream busy while the host enqueues what is to be timed.
__global__ void hold(std::uint64_t nanoseconds) {
  std::uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

__host__ __device__ inline std::uint64_t mixed(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// Random bytes, eight at a time; `count` is a multiple of 8.
__global__ void random_bytes(std::uint64_t* words, std::uint64_t count, std::uint64_t seed) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count / 8; i += stride)
    words[i] = mixed(seed * 0x100000001B3U + i);
}

/// fp32 scales between 2^-9 and 2^-7.
__global__ void random_scales(std::uint32_t* scales, std::uint64_t count, std::uint64_t seed) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    scales[i] = 0x3B000000U + static_cast<std::uint32_t>(mixed(seed * 0x1000193U + i) & 0x00FFFFFFU);
}

}  // namespace

/// Device seconds of what `enqueue` puts on a stream.
template <class Enqueue>
double device_seconds(cudaStream_t stream, Enqueue&& enqueue) {
  cudaEvent_t begin = nullptr, end = nullptr;
  BENCH_CUDA(cudaEventCreate(&begin));
  BENCH_CUDA(cudaEventCreate(&end));
  hold<<<1, 1, 0, stream>>>(2'000'000);
  BENCH_CUDA(cudaEventRecord(begin, stream));
  enqueue();
  BENCH_CUDA(cudaEventRecord(end, stream));
  BENCH_CUDA(cudaStreamSynchronize(stream));
  float milliseconds = 0;
  BENCH_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  BENCH_CUDA(cudaEventDestroy(begin));
  BENCH_CUDA(cudaEventDestroy(end));
  return milliseconds * 1e-3;
}

/// Rows of a table; `print` writes them, then `JSON {...}` on one line.
class table {
 public:
  /// `ratio`: of the yardstick that `of` names.
  void add(const std::string& name, double seconds, double bytes, double ratio, const char* of = "copy") {
    std::printf("%-58s %9.3f ms  %6.3f TB/s  %5.3f of %s\n", name.c_str(), seconds * 1e3, bytes / seconds * 1e-12, ratio, of);
    char text[256];
    std::snprintf(text, sizeof text, "{\"name\": \"%s\", \"ms\": %.4f, \"tb_per_s\": %.4f, \"of_%s\": %.4f}",
                  name.c_str(), seconds * 1e3, bytes / seconds * 1e-12, of, ratio);
    rows_.emplace_back(text);
  }
  void print(bool verified) const {
    std::printf("JSON {\"verified\": %s, \"rows\": [", verified ? "true" : "false");
    for (std::size_t i = 0; i < rows_.size(); ++i) std::printf("%s%s", i == 0 ? "" : ", ", rows_[i].c_str());
    std::printf("]}\n");
  }

 private:
  std::vector<std::string> rows_ = {};
};

}  // namespace bench
