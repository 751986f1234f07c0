#pragma once
/// `cuda_lanes`: the events of open lanes, made once.

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "cuda_call.cuh"

namespace wreload::detail {

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

}  // namespace wreload::detail
