#pragma once
/// `cuda_readers`: what the streams that read weights had been given when somebody asked.

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "../core/tensor_ref.hpp"
#include "cuda_call.cuh"
#include "cuda_lanes.cuh"

namespace wreload::detail {

/// Events on the readers' streams. Each lane waits for them once, on the device, before its next write.
class cuda_readers {
 public:
  static constexpr int most = 64;

  cuda_readers() = default;
  cuda_readers(const cuda_readers&) = delete;             // owns events
  cuda_readers& operator=(const cuda_readers&) = delete;
  ~cuda_readers() {
    for (cudaEvent_t event : events_)
      if (event != nullptr) (void)cudaEventDestroy(event);
  }

  status make() {
    for (cudaEvent_t& event : events_)
      if (event == nullptr)
        if (status failed =
                cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
            !failed.ok())
          return failed;
    return {};
  }

  /// From here on lanes wait for what these streams have been given so far.
  status record(std::span<const stream_ref> streams) {
    if (streams.size() > events_.size())
      return refuse(error_code::bad_argument, {}, "at most " + std::to_string(most) + " reader streams",
                    std::to_string(streams.size()));
    ++generation_;
    count_ = streams.size();
    for (std::size_t i = 0; i < count_; ++i)
      if (status failed = cuda_status(cudaEventRecord(events_[i], static_cast<cudaStream_t>(streams[i].handle)),
                                      "cudaEventRecord on a reader's stream");
          !failed.ok())
        return failed;
    return {};
  }

  /// The lane goes on after them, if it does not yet.
  status hold_back(cuda_lane& on) const {
    if (on.readers_seen == generation_) return {};
    for (std::size_t i = 0; i < count_; ++i)
      if (status failed = on.wait_for(events_[i]); !failed.ok()) return failed;
    on.readers_seen = generation_;
    return {};
  }

 private:
  std::array<cudaEvent_t, most> events_ = {};
  std::size_t count_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace wreload::detail
