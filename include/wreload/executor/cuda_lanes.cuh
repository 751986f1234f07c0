#pragma once
/// `cuda_lane`: a stream on which an update works. `cuda_lanes`: the events of open lanes, made once.

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "cuda_call.cuh"

namespace wreload {

struct cuda_table;

namespace detail {

/// A few events for each of at most `most` open lanes. An event that is recorded again on the same lane stands for a
/// later point: who waits for the earlier one waits longer, never too short.
class cuda_lanes {
 public:
  static constexpr int most = 64;

  cuda_lanes() = default;
  cuda_lanes(const cuda_lanes&) = delete;             // owns events
  cuda_lanes& operator=(const cuda_lanes&) = delete;
  ~cuda_lanes() {
    for (slot& each : slots_)
      for (cudaEvent_t event : each.events)
        if (event != nullptr) (void)cudaEventDestroy(event);
  }

  status make() {
    for (slot& each : slots_)
      for (cudaEvent_t& event : each.events)
        if (event == nullptr)
          if (status failed = cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                          "cudaEventCreateWithFlags");
              !failed.ok())
            return failed;
    return {};
  }

  /// A free slot; -1 where `most` lanes are open.
  int take() {
    const std::lock_guard guard(lock_);
    for (int i = 0; i < most; ++i) {
      if (slots_[static_cast<std::size_t>(i)].taken) continue;
      slots_[static_cast<std::size_t>(i)].taken = true;
      return i;
    }
    return -1;
  }
  void give_back(int index) {
    const std::lock_guard guard(lock_);
    if (index >= 0) slots_[static_cast<std::size_t>(index)].taken = false;
  }

  cudaEvent_t next_event(int index) {
    slot& of = slots_[static_cast<std::size_t>(index)];
    return of.events[of.next.fetch_add(1) % events_per_lane];
  }

 private:
  static constexpr std::size_t events_per_lane = 4;
  struct slot {
    std::array<cudaEvent_t, events_per_lane> events = {};
    std::atomic<std::size_t> next = 0;
    bool taken = false;
  };
  std::array<slot, most> slots_ = {};
  std::mutex lock_ = {};
};

/// A stream of the caller's (or the executor's own), with events. Movable.
class cuda_lane {
 public:
  /// `epoch`: in which it is opened; a cancel ends it.
  cuda_lane(cuda_lanes& events, cudaStream_t stream, std::uint32_t epoch)
      : events_(&events), stream_(stream), slot_(events.take()), epoch_(epoch) {}
  cuda_lane(cuda_lane&& other) noexcept
      : kept(other.kept), readers_seen(other.readers_seen), events_(std::exchange(other.events_, nullptr)),
        stream_(other.stream_), slot_(other.slot_), epoch_(other.epoch_) {}
  cuda_lane& operator=(cuda_lane&&) = delete;
  ~cuda_lane() {
    if (events_ != nullptr) events_->give_back(slot_);
  }

  bool has_events() const { return slot_ >= 0; }
  cudaStream_t stream() const { return stream_; }
  std::uint32_t epoch() const { return epoch_; }

  /// An event behind everything that the stream was given so far. Requires: `has_events`
  status record(cudaEvent_t& event) const {
    event = events_->next_event(slot_);
    return cuda_status(cudaEventRecord(event, stream_), "cudaEventRecord");
  }
  /// The stream goes on after an event.
  status wait_for(cudaEvent_t event) const {
    return cuda_status(cudaStreamWaitEvent(stream_, event, 0), "cudaStreamWaitEvent");
  }

  cuda_table* kept = nullptr;       ///< receives what is enqueued, if it is not null
  std::uint64_t readers_seen = 0;   ///< see `cuda_readers`

 private:
  cuda_lanes* events_;
  cudaStream_t stream_;
  int slot_;
  std::uint32_t epoch_;
};

}  // namespace detail
}  // namespace wreload
