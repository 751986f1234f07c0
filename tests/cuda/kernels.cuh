#pragma once
/// Kernels that tests put beside the library's: delays, blocked streams, readers, plain references.

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include <wreload/numerics/dequant.hpp>

#include "../cuda_memory.cuh"

namespace wreload::test {
namespace {

/// Keeps a stream busy for some nanoseconds.
__global__ void delay(std::uint64_t nanoseconds) {
  std::uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

/// Keeps a stream blocked until the host sets the word.
__global__ void hold_until(const std::uint32_t* word) {
  while (*static_cast<const volatile std::uint32_t*>(word) == 0) __nanosleep(1000);
}

/// Sums 32-bit words.
__global__ void sum_words(const std::uint32_t* data, std::uint64_t count, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) mine += data[i];
  atomicAdd(sum, mine);
}

/// splitmix64 of an index: random bytes that need no memory.
__host__ __device__ inline std::uint64_t mixed(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// A random FP8 code, and a random scale near 2^-8.
__host__ __device__ inline std::uint8_t random_code(std::uint64_t seed, std::uint64_t index) {
  return static_cast<std::uint8_t>(mixed(seed * 0x100000001B3U + index) >> 32);
}
__host__ __device__ inline std::uint32_t random_scale(std::uint64_t seed, std::uint64_t index) {
  return 0x3B000000U + static_cast<std::uint32_t>(mixed(seed * 0x1000193U + index) & 0x00FFFFFFU);
}

__global__ void fill_codes(std::uint8_t* codes, std::uint64_t count, std::uint64_t seed) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    codes[i] = random_code(seed, i);
}
__global__ void fill_scales(std::uint32_t* scales, std::uint64_t count, std::uint64_t seed) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    scales[i] = random_scale(seed, i);
}

/// Counts elements of a dequantised matrix (128 x 128 blocks, e4m3, fp32 scales, bf16) that are not what the codec's
/// integer arithmetic says.
__global__ void count_wrong(const std::uint16_t* found, std::uint64_t rows, std::uint64_t cols, std::uint64_t seed,
                            unsigned long long* wrong) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t blocks = (cols + 127) / 128;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * cols; i += stride) {
    const std::uint64_t block = i / cols / 128 * blocks + i % cols / 128;
    const auto expected = dequantise<fp8_e4m3, bf16, fp32>(random_code(seed, i), random_scale(seed, block));
    if (found[i] != expected) atomicAdd(wrong, 1ULL);
  }
}

/// A stream that stands still, on a word in mapped memory, until it is released or the object ends.
class held_stream {
 public:
  explicit held_stream(stream_ref held) {
    WRELOAD_TEST_CUDA(cudaHostAlloc(&word_, sizeof *word_, cudaHostAllocMapped));
    *word_ = 0;
    WRELOAD_TEST_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    const auto stream = static_cast<cudaStream_t>(held.handle);
    hold_until<<<1, 1, 0, stream>>>(word_);
    WRELOAD_TEST_CUDA(cudaEventRecord(event_, stream));
  }
  held_stream(const held_stream&) = delete;
  held_stream& operator=(const held_stream&) = delete;
  ~held_stream() {
    release();
    (void)cudaDeviceSynchronize();
    (void)cudaEventDestroy(event_);
    (void)cudaFreeHost(word_);
  }
  /// Does not come before the release.
  event_ref event() const { return {event_}; }
  void release() { std::atomic_ref<std::uint32_t>(*word_).store(1); }
  /// What was queued behind it, anywhere, has its turn.
  void release_and_drain() {
    release();
    WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
  }

 private:
  std::uint32_t* word_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace
}  // namespace wreload::test
