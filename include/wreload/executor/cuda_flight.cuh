#pragma once
/// `cuda_flight`: the launches in flight on a device, and how a host thread waits for them.

#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "../kernel/work.cuh"
#include "backoff.hpp"
#include "cuda_call.cuh"
#include "cuda_lanes.cuh"
#include "cuda_memory.cuh"
#include "launch_book.hpp"
#include "lent_memory.hpp"

namespace wreload::detail {

/// The book of launches and what it needs of the device. What a host thread waits for on behalf of a lane goes through
/// here: it asks again and again (see `backoff`), so that a cancel from another thread ends the wait, and an error of the
/// device. (`drain` and `cancel` wait for no stream of the caller's.)
///
/// Threads:   any, but for `reserve`
class cuda_flight {
 public:
  static constexpr int most_cancel_seconds = 30;

  explicit cuda_flight(int device) : device_(device) {}
  cuda_flight(const cuda_flight&) = delete;             // owns a stream
  cuda_flight& operator=(const cuda_flight&) = delete;
  ~cuda_flight() {
    if (own_stream_ != nullptr) (void)cudaStreamDestroy(own_stream_);
  }

  /// Enqueues on `own_stream`, once that is made. Requires: nothing is in flight.
  status reserve() {
    constexpr std::int64_t word = sizeof(std::uint32_t);
    if (status failed = states_.allocate(std::int64_t{launch_book::words} * word); !failed.ok()) return failed;
    if (status failed = counters_.allocate(launch_book::records * kernel::counter::words * word); !failed.ok())
      return failed;
    book_.use(states_.words());
    if (own_stream_ == nullptr)
      if (status failed =
              cuda_status(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
          !failed.ok())
        return failed;
    const auto bytes = static_cast<std::size_t>(counters_.bytes());
    return cuda_status(cudaMemsetAsync(counters_.data(), 0, bytes, own_stream_), "cudaMemsetAsync");
  }
  std::int64_t bytes() const { return states_.bytes() + counters_.bytes(); }

  int device() const { return device_; }
  /// Waits for no stream of the caller's, and has only the library's own work.
  cudaStream_t own_stream() const { return own_stream_; }
  std::uint32_t epoch() const { return states_.data() == nullptr ? 0 : book_.epoch(); }
  bool all_done() const { return book_.all_done(); }

  /// Queued launches write nothing from here on. Waits for those that run, at most `most_cancel_seconds`.
  status cancel() {
    book_.cancel();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(most_cancel_seconds);
    for (std::int32_t record = 0; record < launch_book::records; ++record) {
      backoff pause;
      for (; book_.is_running(record); pause()) {
        if (!pause.is_long()) continue;
        if (status failed = device_error(); !failed.ok()) return failed;
        if (std::chrono::steady_clock::now() > end)
          return refuse(error_code::execution_failed, "cancel", "running landings to end",
                        "one that ran for " + std::to_string(most_cancel_seconds) + " s");
      }
    }
    return {};
  }

  /// Waits until no launch is queued or running, or the device has failed.
  void drain() const {
    for (backoff pause; !book_.all_done(); pause())
      if (pause.is_long() && !device_error().ok()) return;
  }

  /// `aborted` where the lane's update was cancelled.
  status check_live(const cuda_lane& on) const {
    if (on.epoch() == book_.epoch()) return {};
    return refuse(error_code::aborted, {}, "an open update", "one that was cancelled");
  }
  /// Whether the lane may take work.
  status check(const cuda_lane& on) const {
    if (!on.has_events())
      return refuse(error_code::out_of_memory, {}, "at most " + std::to_string(cuda_lanes::most) + " open lanes",
                    "one more");
    if (status refused = check_live(on); !refused.ok()) return refused;
    status refused = check_not_capturing(on.stream());
    if (!refused.ok()) refused.code = error_code::execution_failed;  // the update has claimed the bytes by now
    return refused;
  }

  /// Waits for everything that the lane's stream was given, and reports its errors. `aborted` where a cancel came
  /// meanwhile: launches that were queued then have done nothing. (Copies and fills that were still come: see
  /// `end_behind`.)
  status wait(const cuda_lane& on) const {
    cudaEvent_t event = nullptr;
    if (status failed = on.record(event); !failed.ok()) return failed;
    status failed = retry(on, [&](status& error) {
      const cudaError_t found = cudaEventQuery(event);
      if (found == cudaErrorNotReady) {
        (void)cudaGetLastError();  // CUDA may keep it as the thread's last error
        return false;
      }
      error = cuda_status(found, "work on a lane's stream");
      return true;
    });
    return failed.ok() ? check_live(on) : failed;
  }

  /// A record for one launch. Waits for a free one.
  status take(const cuda_lane& on, launch_id& id) {
    return retry(on, [&](status&) {
      const std::lock_guard guard(lock_);
      id = book_.take();
      return id.record >= 0;
    });
  }
  void drop(launch_id id) const { book_.drop(id); }
  /// Ends a record that no launch has once the lane's stream is here, whatever becomes of its update.
  status end_behind(const cuda_lane& on, launch_id id) const {
    return copy_async(book_.state_word(id.record), counters_of(id), sizeof(std::uint32_t), on.stream());  // a zero
  }

  /// A piece of memory until the launch is done: its offset, or -1 where there is none now.
  std::int64_t try_lend(lent_memory& from, std::int64_t bytes, launch_id to) {
    const std::lock_guard guard(lock_);
    return from.take(bytes, to, book_);
  }
  /// The same, but waits for one.
  status lend(const cuda_lane& on, lent_memory& from, std::int64_t bytes, launch_id to, std::int64_t& offset) {
    return retry(on, [&](status&) { return (offset = try_lend(from, bytes, to)) >= 0; });
  }

  kernel::gate gate_of(const cuda_lane& on, launch_id id) const {
    return {book_.state_word(id.record), book_.epoch_word(), counters_of(id), on.epoch()};
  }

 private:
  /// Zeros between launches.
  std::uint32_t* counters_of(launch_id id) const {
    return counters_.words() + kernel::counter::words * static_cast<std::size_t>(id.record);
  }

  /// Calls `attempt(error)` until it is true; gives up when the update is cancelled or the device has failed.
  template <class Attempt>
  status retry(const cuda_lane& on, Attempt&& attempt) const {
    status failed;
    for (backoff pause; !attempt(failed); pause()) {
      if (status cancelled = check_live(on); !cancelled.ok()) return cancelled;
      if (pause.is_long())
        if (status broken = device_error(); !broken.ok()) return broken;
    }
    return failed;
  }

  /// A sticky error of the device, if it has one.
  status device_error() const {
    const device_guard guard(device_);
    const cudaError_t error = cudaStreamQuery(own_stream_);
    if (error == cudaErrorNotReady) (void)cudaGetLastError();
    return error == cudaErrorNotReady ? status{} : cuda_status(error, "a kernel");
  }

  int device_;
  cudaStream_t own_stream_ = nullptr;
  cuda_memory states_{cuda_memory::kind::pinned};    ///< the book's words
  cuda_memory counters_{cuda_memory::kind::device};  ///< `counter::words` per record
  std::mutex lock_ = {};                             ///< of the book's records and all memory that is lent
  launch_book book_ = {};
};

/// A record for a launch to come: given up at the end of the scope, unless the launch has it by then.
class launch_record {
 public:
  explicit launch_record(cuda_flight& flight) : flight_(flight) {}
  launch_record(const launch_record&) = delete;             // one record
  launch_record& operator=(const launch_record&) = delete;
  ~launch_record() {
    if (is_held()) flight_.drop(id_);
  }

  status take(const cuda_lane& on) { return flight_.take(on, id_); }
  bool is_held() const { return id_.record >= 0; }
  launch_id id() const { return id_; }
  /// The device ends the record now.
  void hand_over() { id_ = {}; }
  /// It does so behind what the lane's stream has been given.
  void end_behind(const cuda_lane& on) {
    if (flight_.end_behind(on, id_).ok()) hand_over();
  }

 private:
  cuda_flight& flight_;
  launch_id id_ = {};
};

}  // namespace wreload::detail
