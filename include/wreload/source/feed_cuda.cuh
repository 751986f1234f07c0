#pragma once
/// `cuda_feed`: a feed whose pages are pinned by CUDA.

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "../executor/cuda_call.cuh"
#include "feed.hpp"

namespace wreload {

/// Pins file pages for one GPU (-1: the calling thread's current one), and copies from them with its own stream.
///
/// Addresses: pages are read at the address they have on the host; where CUDA gives them another they count as not pinned
/// Stream:    two streams of its own, which wait for no other; it never waits on the host
/// Errors:    CUDA's, from `prepare`, `copy` and `note`. A page that cannot be pinned is no error
class cuda_pages {
 public:
  static constexpr bool reads_mappings = false;

  explicit cuda_pages(int device = -1) : device_(device) {
    if (device_ < 0 && cudaGetDevice(&device_) != cudaSuccess) device_ = 0;
  }
  cuda_pages(const cuda_pages&) = delete;  // owns events and streams
  cuda_pages& operator=(const cuda_pages&) = delete;
  ~cuda_pages() {
    const detail::device_guard guard(device_);
    for (const std::vector<cudaEvent_t>* events : {&copied_, &landed_})
      for (cudaEvent_t event : *events) (void)cudaEventDestroy(event);
    for (cudaStream_t stream : {copies_, behind_})
      if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }

  status prepare(std::size_t batches) {
    const detail::device_guard guard(device_);
    for (cudaStream_t* stream : {&copies_, &behind_})
      if (*stream == nullptr)
        if (status failed =
                check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
            !failed.ok())
          return failed;
    for (std::vector<cudaEvent_t>* events : {&copied_, &landed_})
      while (events->size() < batches) {
        cudaEvent_t made = nullptr;
        if (status failed = check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
            !failed.ok())
          return failed;
        events->push_back(made);
      }
    use_.assign(batches, {});
    return {};
  }

  /// A thread that was made for this uses no other device.
  void enter_thread() const { (void)cudaSetDevice(device_); }

  /// File mappings are read-only: CUDA pins them so where the device can map them that way.
  bool pin(const page_range& pages) {
    const detail::device_guard guard(device_);
    static constexpr unsigned ways[] = {cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly,
                                        cudaHostRegisterPortable | cudaHostRegisterMapped};
    constexpr int count = static_cast<int>(std::size(ways));
    auto* const first = const_cast<std::byte*>(pages.begin);
    // One that has worked is tried first.
    for (int i = 0, way = way_.load(std::memory_order_relaxed); i < count; ++i, way = (way + 1) % count) {
      if (cudaHostRegister(first, static_cast<std::size_t>(pages.bytes()), ways[way]) != cudaSuccess) {
        (void)cudaGetLastError();
        continue;
      }
      void* seen = nullptr;
      const bool same = cudaHostGetDevicePointer(&seen, first, 0) == cudaSuccess && seen == first;
      if (same) {
        way_.store(way, std::memory_order_relaxed);
        return true;
      }
      (void)cudaGetLastError();
      (void)cudaHostUnregister(first);
    }
    return false;
  }
  void unpin(const page_range& pages) const {
    const detail::device_guard guard(device_);
    if (cudaHostUnregister(const_cast<std::byte*>(pages.begin)) != cudaSuccess) (void)cudaGetLastError();
  }
  /// Whether pages were pinned as read-only ones.
  bool pins_read_only() const { return way_.load() == 0; }

  status copy(std::size_t batch, std::span<const copy_run> runs, std::byte* to, std::int64_t after, event_ref* ready) {
    const detail::device_guard guard(device_);
    use_[batch].copies = true;
    status result;
    if (after >= 0 && use_[static_cast<std::size_t>(after)].lands)
      result = check(cudaStreamWaitEvent(copies_, landed_[static_cast<std::size_t>(after)], 0), "cudaStreamWaitEvent");
    for (const copy_run& run : runs) {
      if (!result.ok()) break;
      const auto row_bytes = static_cast<std::size_t>(run.row_bytes);
      result = run.rows == 1
                   ? check(cudaMemcpyAsync(to + run.slot_offset, run.from, row_bytes, cudaMemcpyHostToDevice, copies_),
                           "cudaMemcpyAsync")
                   : check(cudaMemcpy2DAsync(to + run.slot_offset, row_bytes, run.from,
                                             static_cast<std::size_t>(run.row_stride_bytes), row_bytes,
                                             static_cast<std::size_t>(run.rows), cudaMemcpyHostToDevice, copies_),
                           "cudaMemcpy2DAsync");
    }
    // Also behind copies that failed half way: the pages are still read.
    const status recorded = check(cudaEventRecord(copied_[batch], copies_), "cudaEventRecord");
    *ready = {copied_[batch]};
    return result.ok() ? recorded : result;
  }

  /// The event may be recorded again on its lane; a stream of our own keeps this point of it.
  status note(std::size_t batch, event_ref read) {
    use_[batch].is_lost = true;  // unless all goes well: nobody will know when it has been read
    if (read.handle == nullptr) return refuse(error_code::execution_failed, {}, "an event behind a load", "none");
    const detail::device_guard guard(device_);
    if (status failed =
            check(cudaStreamWaitEvent(behind_, static_cast<cudaEvent_t>(read.handle), 0), "cudaStreamWaitEvent");
        !failed.ok())
      return failed;
    if (status failed = check(cudaEventRecord(landed_[batch], behind_), "cudaEventRecord"); !failed.ok()) return failed;
    use_[batch] = {.copies = use_[batch].copies, .lands = true};
    return {};
  }

  bool is_read(std::size_t batch) const { return use_[batch].copies ? is_done(copied_[batch]) : is_landed(batch); }
  bool is_landed(std::size_t batch) const {
    return !use_[batch].is_lost && (!use_[batch].lands || is_done(landed_[batch]));
  }

  std::byte* take_pinned(std::int64_t bytes) const {
    const detail::device_guard guard(device_);
    void* made = nullptr;
    if (cudaHostAlloc(&made, static_cast<std::size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped) ==
        cudaSuccess)
      return static_cast<std::byte*>(made);
    (void)cudaGetLastError();
    return nullptr;
  }
  void give_back(std::byte* memory) const {
    const detail::device_guard guard(device_);
    (void)cudaFreeHost(memory);
  }

 private:
  struct used {
    bool copies = false;
    bool lands = false;
    bool is_lost = false;
  };

  static status check(cudaError_t error, std::string_view call) { return detail::cuda_status(error, call); }

  /// An event of a device that has failed is done: nothing runs there any more.
  bool is_done(cudaEvent_t event) const {
    const detail::device_guard guard(device_);
    const cudaError_t found = cudaEventQuery(event);
    if (found != cudaSuccess) (void)cudaGetLastError();
    return found != cudaErrorNotReady;
  }

  int device_;
  cudaStream_t copies_ = nullptr;
  cudaStream_t behind_ = nullptr;         ///< waits for the lane's events
  std::vector<cudaEvent_t> copied_ = {};  ///< per batch
  std::vector<cudaEvent_t> landed_ = {};  ///< per batch
  std::vector<used> use_ = {};            ///< per batch
  std::atomic<int> way_ = 0;
};

using cuda_feed = basic_feed<cuda_pages>;

}  // namespace wreload
