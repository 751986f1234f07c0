#pragma once
/// `test_memory<cuda_executor>`: device allocations with guards, sources of all three memory kinds at odd addresses, and
/// streams that wait for no other. See tests/memory.hpp.

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <wreload/wreload.cuh>

#include "memory.hpp"

extern template class wreload::basic_cuda_executor<>;  // once, in cuda/instances.cu

namespace wreload::test {

/// Throws with the call's name: no test goes on after a CUDA error.
inline void cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}
#define WRELOAD_TEST_CUDA(call) ::wreload::test::cuda((call), #call)

template <>
class test_memory<cuda_executor> {
 public:
  test_memory() = default;
  test_memory(const test_memory&) = delete;             // owns device memory
  test_memory& operator=(const test_memory&) = delete;
  ~test_memory() {
    (void)cudaDeviceSynchronize();
    for (const auto& [first, bytes] : blocks_)
      if (arena() == nullptr) (void)cudaFree(first - guard_bytes);
    drop_sources();
    if (pinned_ != nullptr) (void)cudaFreeHost(pinned_);
    for (cudaStream_t each : streams_)
      if (each != nullptr) (void)cudaStreamDestroy(each);
  }

  void in_arena(std::int64_t bytes) {
    arena_.open(bytes, std::int64_t{2} << 20);
    for (std::byte* each : {arena()->data(), arena()->spare()})  // a swap copies gaps too: initcheck would mind
      WRELOAD_TEST_CUDA(cudaMemset(each, 0, static_cast<std::size_t>(arena()->bytes())));
    WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
  }
  cuda_arena* arena() const { return arena_.get(); }

  std::byte* allocate(std::int64_t bytes, std::byte poison) {
    std::byte* block = nullptr;
    const auto size = static_cast<std::size_t>(bytes);
    if (arena() != nullptr || mode_under_test() == update_mode::swap) {
      if (arena() == nullptr) in_arena(small_arena_bytes);
      block = arena_.take(bytes + 2 * std::int64_t{guard_bytes});
    } else {
      WRELOAD_TEST_CUDA(cudaMalloc(&block, size + 2 * guard_bytes));
    }
    WRELOAD_TEST_CUDA(cudaMemset(block, std::to_integer<int>(guard), size + 2 * guard_bytes));
    WRELOAD_TEST_CUDA(cudaMemset(block + guard_bytes, std::to_integer<int>(poison), size));
    WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
    blocks_.emplace(block + guard_bytes, size);
    return block + guard_bytes;
  }
  void write(std::byte* to, const void* from, std::int64_t bytes) {
    if (bytes == 0) return;
    WRELOAD_TEST_CUDA(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice));
    WRELOAD_TEST_CUDA(cudaDeviceSynchronize());  // the copy may still be under way, and our streams do not wait for it
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) const {
    if (bytes == 0) return;
    WRELOAD_TEST_CUDA(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost));
  }
  void free(std::byte* first) {
    blocks_.erase(first);
    if (arena() == nullptr) WRELOAD_TEST_CUDA(cudaFree(first - guard_bytes));
  }

  bool guards_intact() const {
    std::array<std::byte, guard_bytes> found;
    for (const auto& [first, bytes] : blocks_)
      for (const std::byte* at : {first - guard_bytes, first + bytes}) {
        WRELOAD_TEST_CUDA(cudaMemcpy(found.data(), at, guard_bytes, cudaMemcpyDeviceToHost));
        for (const std::byte each : found)
          if (each != guard) return false;
      }
    return true;
  }

  /// Device, pinned and pageable memory in turn, at any offset from an aligned address; a device source ends where its
  /// allocation ends.
  placed_source place(const void* bytes, std::int64_t count) {
    const auto size = static_cast<std::size_t>(count);
    const std::lock_guard guarded(lock_);
    const std::size_t turn = turn_++;
    const std::size_t shift = turn * 5 % 16;
    if (turn % 3 == 0) {
      std::byte* block = nullptr;
      WRELOAD_TEST_CUDA(cudaMalloc(&block, size + shift + (size + shift == 0)));
      device_sources_.push_back(block);
      write(block + shift, bytes, count);
      return {block + shift, memory_kind::device};
    }
    if (turn % 3 == 1 && pinned_used_ + size + shift <= pinned_bytes) {
      if (pinned_ == nullptr) WRELOAD_TEST_CUDA(cudaHostAlloc(&pinned_, pinned_bytes, cudaHostAllocDefault));
      std::byte* at = pinned_ + pinned_used_ + shift;
      pinned_used_ = (pinned_used_ + size + shift + 15) / 16 * 16;
      if (size > 0) std::memcpy(at, bytes, size);
      return {at, memory_kind::pinned};
    }
    host_sources_.push_back(std::make_unique<std::byte[]>(size + shift));
    if (size > 0) std::memcpy(host_sources_.back().get() + shift, bytes, size);
    return {host_sources_.back().get() + shift, memory_kind::pageable};
  }
  void drop_sources() {
    (void)cudaDeviceSynchronize();
    for (std::byte* block : device_sources_) (void)cudaFree(block);
    device_sources_.clear();
    host_sources_.clear();
    pinned_used_ = 0;
  }

  stream_ref stream(int index) {
    const std::lock_guard guarded(lock_);
    cudaStream_t& found = streams_[static_cast<std::size_t>(index) % streams_.size()];
    if (found == nullptr) WRELOAD_TEST_CUDA(cudaStreamCreateWithFlags(&found, cudaStreamNonBlocking));
    return {found};
  }

 private:
  static constexpr std::size_t guard_bytes = 256;  // keeps the alignment that cudaMalloc gives
  static constexpr std::byte guard{0x6B};
  static constexpr std::size_t pinned_bytes = std::size_t{4} << 20;

  arena_memory<cuda_arena> arena_ = {};
  std::map<std::byte*, std::size_t> blocks_ = {};
  std::vector<std::byte*> device_sources_ = {};
  std::vector<std::unique_ptr<std::byte[]>> host_sources_ = {};
  std::byte* pinned_ = nullptr;
  std::size_t pinned_used_ = 0;
  std::size_t turn_ = 0;
  std::array<cudaStream_t, 8> streams_ = {};
  std::mutex lock_ = {};
};

/// Waits for the stream: only for tests, whose launchers compute on the host.
template <>
struct launch_memory<cuda_executor> {
  static void read(stream_ref stream, void* to, const std::byte* from, std::int64_t bytes) {
    copy(stream, to, from, bytes, cudaMemcpyDeviceToHost);
  }
  static void write(stream_ref stream, std::byte* to, const void* from, std::int64_t bytes) {
    copy(stream, to, from, bytes, cudaMemcpyHostToDevice);
  }

 private:
  static void copy(stream_ref stream, void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
    const auto on = static_cast<cudaStream_t>(stream.handle);
    WRELOAD_TEST_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, on));
    WRELOAD_TEST_CUDA(cudaStreamSynchronize(on));
  }
};

}  // namespace wreload::test
