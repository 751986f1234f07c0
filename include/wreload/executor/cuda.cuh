#pragma once
/// `cuda_executor`: batched kernels on the caller's streams.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "../numerics/visit.hpp"
#include "cuda_answers.cuh"
#include "cuda_arena.cuh"
#include "cuda_aside.cuh"
#include "cuda_call.cuh"
#include "cuda_dequant.cuh"
#include "cuda_derived.cuh"
#include "cuda_flight.cuh"
#include "cuda_landing.cuh"
#include "cuda_lanes.cuh"
#include "cuda_launcher.cuh"
#include "cuda_maps.cuh"
#include "cuda_memory.cuh"
#include "cuda_options.cuh"
#include "cuda_readers.cuh"
#include "cuda_table.cuh"
#include "executor.hpp"
#include "source_window.cuh"

namespace wreload {

/// `cuda_executor`: the executor for one GPU.
///
/// Sources: device memory and pinned memory are read by the landing kernel where they lie (pinned memory across PCIe: no
/// device window is needed, and a landing can be cancelled, which a copy engine's write cannot). Pageable memory is
/// copied by the calling thread into the pinned window and may be reused when `land` has returned. A source said to be
/// pageable that CUDA knows as device or pinned memory is treated as that.
///
/// Stream:    `land`, `compare`, `fill` and `dequantise` do not synchronise, with one exception: `land` and `compare`
///            wait for earlier landings where the window is full of pageable bytes. (CUDA itself blocks a launch once
///            about a thousand are queued.) Tables that find no room travel as kernel parameters, in more launches
/// Waiting:   for a lane by asking, never in a call that blocks on its stream: a cancel from another thread ends it. For
///            10 ms a wait takes a core, but for threads that want it, and is seen to end at once; then it sleeps
///            between looks, and is late by some 100 us: see executor/backoff.hpp. (`reserve`, `allocate` and `release`
///            may block on the executor's own stream, which has nothing of the caller's.)
/// Cancel:    see kernel/work.cuh; needs no stream. Waits for kernels that have begun, at most `most_cancel_seconds`
/// Device:    every call restores the calling thread's current device and capture mode
/// Errors:    CUDA's are `execution_failed` (or `out_of_memory`) with the name of the call
///
/// The destructor waits for everything that was enqueued. Lanes must be gone by then.
///
/// A template so that including this file compiles no kernel: what is not used is not instantiated. There is one
/// instance, `cuda_executor`.
template <class Use = void>
class basic_cuda_executor {
 public:
  static constexpr std::string_view name = "cuda";
  static constexpr int most_readers = detail::cuda_readers::most;
  static constexpr int most_cancel_seconds = detail::cuda_flight::most_cancel_seconds;
  using arena = cuda_arena;
  using table = cuda_table;
  using lane = detail::cuda_lane;

  explicit basic_cuda_executor(const cuda_options& options = {})
      : options_(with_device(options)), flight_(options_.device), launcher_(flight_), window_(flight_) {}
  basic_cuda_executor(const basic_cuda_executor&) = delete;             // lanes point to it
  basic_cuda_executor& operator=(const basic_cuda_executor&) = delete;
  ~basic_cuda_executor() {
    if (!reserved_) return;
    leaving_.emplace(options_.device);
    flight_.drain();
    aside_.clear(flight_.own_stream());
  }

  /// Loads the kernels and allocates everything. Waits.
  status reserve(const executor_needs& needs) {
    const detail::device_guard guard(options_.device);
    if (reserved_) flight_.drain();
    if (status failed = allocate(needs); !failed.ok()) return failed;
    if (status failed = preload(needs.keys); !failed.ok()) return failed;
    reserved_ = true;
    return {};
  }

  lane open(stream_ref stream) { return {lanes_, static_cast<cudaStream_t>(stream.handle), flight_.epoch()}; }
  lane open_own() { return {lanes_, flight_.own_stream(), flight_.epoch()}; }

  status begin(std::span<const stream_ref> readers) {
    if (!reserved_) return not_reserved();
    clear_flags();
    return hold(readers);
  }

  status hold(std::span<const stream_ref> readers) {
    if (!reserved_) return not_reserved();
    const detail::device_guard guard(options_.device);
    return readers_.record(readers);
  }

  status cancel() { return reserved_ ? flight_.cancel() : status{}; }

  status check_idle(std::span<const stream_ref> streams) const {
    const detail::device_guard guard(options_.device);
    for (const stream_ref stream : streams)
      if (status refused = detail::check_not_capturing(static_cast<cudaStream_t>(stream.handle)); !refused.ok())
        return refused;
    return {};
  }

  status land(lane& on, std::span<const land_job> jobs);

  /// In one pass where the source is copied as it is, in whole rows that begin at multiples of 16 bytes in storage and
  /// of 4 in the source. Else (and from pageable memory) the source is read twice.
  status land_digested(lane& on, std::span<const land_job> jobs, std::span<const land_digest> into);

  status compare(lane& on, std::span<const land_job> jobs, std::span<const std::int32_t> flags);

  status fill(lane& on, std::span<const fill_job> jobs);

  status combine(lane& on, std::span<const combine_job> jobs);

  status dequantise(lane& on, const dequant_key& key, std::span<const dequant_job> jobs);

  void keep(lane& on, table* into) const { on.kept = into; }

  status replay(lane& on, const table& kept, std::ptrdiff_t shift) {
    return on_lane(on, access::writes, [&] { return launcher_.launch_again(on, kept, shift); });
  }
  bool keeps_tables() const { return launcher_.kept().bytes() > 0; }
  std::int64_t kept_bytes() { return launcher_.kept().taken(); }
  void drop_kept(std::int64_t mark) { launcher_.kept().drop(mark); }

  static constexpr bool converts_from(memory_kind where) { return where != memory_kind::pageable; }

  status wait_for(lane& on, event_ref event) {
    return on_lane(on, access::reads, [&] { return on.wait_for(static_cast<cudaEvent_t>(event.handle)); });
  }

  status join(lane& on, lane& other) {
    return on_lane(on, access::reads, [&] {
      if (status refused = flight_.check(other); !refused.ok()) return refused;
      cudaEvent_t event = nullptr;
      const status failed = other.record(event);
      return failed.ok() ? on.wait_for(event) : failed;
    });
  }

  /// Null where the event could not be recorded; the next call on the lane then says why.
  event_ref record(lane& on) {
    const detail::device_guard guard(options_.device);
    cudaEvent_t event = nullptr;
    return {on.has_events() && on.record(event).ok() ? event : nullptr};
  }

  stream_ref stream_of(lane& on) const { return {on.stream()}; }

  status wait(lane& on) {
    return on_lane(on, access::reads, [&] { return flight_.wait(on); });
  }

  status read(lane& on, std::byte* host, const std::byte* data, std::int64_t bytes) {
    return copy_and_wait(on, host, data, bytes, cudaMemcpyDeviceToHost);
  }
  status write(lane& on, std::byte* data, const std::byte* host, std::int64_t bytes) {
    return copy_and_wait(on, data, host, bytes, cudaMemcpyHostToDevice);
  }

  status allocate(std::int64_t bytes, memory_kind where, std::byte** memory) {
    const detail::device_guard guard(options_.device);
    return aside_.allocate(bytes, where, flight_.own_stream(), flight_.all_done(), memory);
  }
  void release(std::byte* memory) {
    const detail::device_guard guard(options_.device);
    aside_.release(memory, flight_.own_stream(), flight_.all_done());
  }

  status digest(lane& on, std::span<const digest_job> jobs, std::span<std::uint64_t> sums);

  status first_difference(lane& on, const difference_job& pair, std::int64_t* first);

  /// Pinned memory that kernels write.
  std::span<std::uint32_t> flags() {
    return {flags_.words(), static_cast<std::size_t>(flags_.bytes()) / sizeof(std::uint32_t)};
  }

  std::int64_t allocated_bytes() const {
    return flight_.bytes() + flags_.bytes() + launcher_.bytes() + window_.bytes() + maps_.bytes() + aside_.bytes();
  }
  std::int64_t launches() const { return launcher_.launches(); }
  int device() const { return options_.device; }

 private:
  static cuda_options with_device(cuda_options options) {
    if (options.device < 0 && cudaGetDevice(&options.device) != cudaSuccess) options.device = 0;
    return options;
  }
  static status check(cudaError_t error, std::string_view call) { return detail::cuda_status(error, call); }
  static status not_reserved() {
    return refuse(error_code::wrong_state, {}, "an executor that was reserved", "one that was not");
  }

  status allocate(const executor_needs& needs) {
    if (status failed = flight_.reserve(); !failed.ok()) return failed;
    if (status failed = flags_.allocate(needs.flags * std::int64_t{sizeof(std::uint32_t)}); !failed.ok()) return failed;
    const std::int64_t table_bytes = detail::table_bytes_for(options_, needs);
    if (status failed = launcher_.reserve(table_bytes, options_.plan_bytes); !failed.ok()) return failed;
    if (status failed = window_.reserve(options_.window_bytes); !failed.ok()) return failed;
    if (status failed = maps_.reserve(needs.maps, flight_.own_stream()); !failed.ok()) return failed;
    if (status failed = readers_.make(); !failed.ok()) return failed;
    if (status failed = lanes_.make(); !failed.ok()) return failed;
    clear_flags();
    return check(cudaStreamSynchronize(flight_.own_stream()), "cudaStreamSynchronize");
  }
  void clear_flags() { std::fill(flags().begin(), flags().end(), 0U); }

  static status preload(std::span<const dequant_key> keys);

  enum class access { reads, writes };

  /// Does work on a lane, with the device set, if the lane may take it. Before its first write of an update the lane
  /// waits for the readers.
  template <class Work>
  status on_lane(lane& on, access what, Work&& work) {
    if (!reserved_) return not_reserved();
    const detail::device_guard guard(options_.device);
    if (status refused = flight_.check(on); !refused.ok()) return refused;
    if (what == access::writes)
      if (status failed = readers_.hold_back(on); !failed.ok()) return failed;
    return work();
  }

  status copy_and_wait(lane& on, std::byte* to, const std::byte* from, std::int64_t bytes, cudaMemcpyKind kind) {
    return on_lane(on, access::reads, [&] {
      if (status failed = flight_.wait(on); !failed.ok()) return failed;  // no cancel ends the wait of a pageable copy
      const cudaError_t error = cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, on.stream());
      const status failed = check(error, "cudaMemcpyAsync");
      return failed.ok() ? flight_.wait(on) : failed;
    });
  }

  detail::cuda_landing<Use> landing() { return {launcher_, maps_, window_, flags_.words()}; }
  detail::cuda_answers<Use> answers() { return {launcher_, maps_}; }

  std::optional<detail::device_guard> leaving_ = {};  ///< destroyed last: the rest is given back under it
  cuda_options options_;
  bool reserved_ = false;
  detail::cuda_flight flight_;
  detail::cuda_launcher launcher_;
  detail::source_window window_;
  detail::cuda_maps maps_ = {};
  detail::cuda_memory flags_{detail::cuda_memory::kind::pinned};
  detail::cuda_readers readers_ = {};
  detail::cuda_lanes lanes_ = {};
  detail::cuda_aside aside_ = {};  ///< what updates keep aside
};

// What launches kernels stands out here, so that a program of many files compiles them once: each file says
//     extern template class wreload::basic_cuda_executor<>;
// and one of them `template class wreload::basic_cuda_executor<>;`.

template <class Use>
status basic_cuda_executor<Use>::land(lane& on, std::span<const land_job> jobs) {
  return on_lane(on, access::writes, [&] { return landing().land(on, jobs); });
}

template <class Use>
status basic_cuda_executor<Use>::land_digested(lane& on, std::span<const land_job> jobs,
                                               std::span<const land_digest> into) {
  return on_lane(on, access::writes, [&] { return landing().land_digested(on, jobs, into); });
}

template <class Use>
status basic_cuda_executor<Use>::compare(lane& on, std::span<const land_job> jobs, std::span<const std::int32_t> flags) {
  return on_lane(on, access::reads, [&] { return landing().compare(on, jobs, flags); });
}

template <class Use>
status basic_cuda_executor<Use>::fill(lane& on, std::span<const fill_job> jobs) {
  return on_lane(on, access::writes, [&] { return detail::cuda_derived<Use>(launcher_).fill(on, jobs); });
}

template <class Use>
status basic_cuda_executor<Use>::combine(lane& on, std::span<const combine_job> jobs) {
  return on_lane(on, access::writes, [&] { return detail::cuda_derived<Use>(launcher_).combine(on, jobs); });
}

template <class Use>
status basic_cuda_executor<Use>::dequantise(lane& on, const dequant_key& key, std::span<const dequant_job> jobs) {
  if (!dequantises(key.stored, key.runtime, key.scale))
    return refuse(error_code::unsupported, {}, "a conversion that is compiled in",
                  std::string(name_of(key.stored)) + " to " + std::string(name_of(key.runtime)));
  return on_lane(on, access::writes, [&] { return detail::cuda_dequant<Use>(launcher_).convert(on, key, jobs); });
}

template <class Use>
status basic_cuda_executor<Use>::digest(lane& on, std::span<const digest_job> jobs, std::span<std::uint64_t> sums) {
  if (jobs.empty()) return {};
  return on_lane(on, access::reads, [&] { return answers().digest(on, jobs, sums); });
}

template <class Use>
status basic_cuda_executor<Use>::first_difference(lane& on, const difference_job& pair, std::int64_t* first) {
  *first = -1;
  if (pair.rows <= 0 || pair.row_bytes <= 0) return {};
  return on_lane(on, access::reads, [&] { return answers().first_difference(on, pair, first); });
}

template <class Use>
status basic_cuda_executor<Use>::preload(std::span<const dequant_key> keys) {
  status failed = detail::cuda_landing<Use>::preload();
  if (failed.ok()) failed = detail::cuda_derived<Use>::preload();
  if (failed.ok()) failed = detail::cuda_answers<Use>::preload();
  for (const dequant_key& key : keys)
    if (failed.ok()) failed = detail::cuda_dequant<Use>::preload(key);
  return failed;
}

using cuda_executor = basic_cuda_executor<>;

static_assert(executor<cuda_executor>);

}  // namespace wreload
