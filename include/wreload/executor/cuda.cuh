#pragma once
/// `cuda_executor`: batched kernels on the caller's streams.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../kernel/combine_scalars.cuh"
#include "../kernel/dequant_rows.cuh"
#include "../kernel/digest_tiles.cuh"
#include "../kernel/fill_rows.cuh"
#include "../kernel/first_difference.cuh"
#include "../kernel/land_rows.cuh"
#include "../numerics/visit.hpp"
#include "backoff.hpp"
#include "cuda_arena.cuh"
#include "cuda_aside.cuh"
#include "cuda_call.cuh"
#include "cuda_lanes.cuh"
#include "cuda_memory.cuh"
#include "cuda_table.cuh"
#include "digest_grid.hpp"
#include "executor.hpp"
#include "launch_book.hpp"
#include "lent_memory.hpp"
#include "stage_rows.hpp"

namespace wreload {

/// What a `cuda_executor` is made of; everything is allocated in `reserve`.
///
///   device        whose memory the tensors lie in; -1: the calling thread's current one
///   window_bytes  pinned memory through which pageable sources pass; 0: pageable sources are refused
///   table_bytes   device memory, and as much pinned memory, for task tables; 0: as much as an update in which every
///                 tensor comes whole can have in flight
///   plan_bytes    device memory for the tables of update plans (see update/bucket.hpp): 112 bytes a
///                 landing, less where it is converted on its way. 0: none, buckets load in the usual way
struct cuda_options {
  int device = -1;
  std::int64_t window_bytes = std::int64_t{16} << 20;
  std::int64_t table_bytes = 0;
  std::int64_t plan_bytes = 0;
};

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
  static constexpr int most_readers = 64;
  static constexpr int most_cancel_seconds = 30;
  using arena = cuda_arena;
  using table = cuda_table;

  /// A stream of the caller's (or the executor's own), with events. Movable.
  class lane {
   public:
    lane(lane&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), stream_(other.stream_), slot_(other.slot_),
          epoch_(other.epoch_), readers_seen_(other.readers_seen_), kept_(other.kept_) {}
    lane& operator=(lane&&) = delete;
    ~lane() {
      if (owner_ != nullptr) owner_->lanes_.give_back(slot_);
    }

   private:
    friend class basic_cuda_executor;
    lane(basic_cuda_executor& owner, cudaStream_t stream)
        : owner_(&owner), stream_(stream), slot_(owner.lanes_.take()), epoch_(owner.epoch()) {}

    basic_cuda_executor* owner_;
    cudaStream_t stream_;
    int slot_;
    std::uint32_t epoch_;
    std::uint64_t readers_seen_ = 0;
    table* kept_ = nullptr;
  };

  explicit basic_cuda_executor(const cuda_options& options = {}) : options_(options) {
    if (options_.device < 0 && cudaGetDevice(&options_.device) != cudaSuccess) options_.device = 0;
  }
  basic_cuda_executor(const basic_cuda_executor&) = delete;             // lanes point to it
  basic_cuda_executor& operator=(const basic_cuda_executor&) = delete;
  ~basic_cuda_executor() {
    if (!reserved_) return;
    const detail::device_guard guard(options_.device);
    drain();
    aside_.clear(own_stream_);
    for (cudaEvent_t event : reader_events_)
      if (event != nullptr) (void)cudaEventDestroy(event);
    (void)cudaStreamDestroy(own_stream_);
    for (detail::cuda_memory* memory : all_memory()) memory->release();
  }

  /// Loads the kernels and allocates everything. Waits.
  status reserve(const executor_needs& needs) {
    const detail::device_guard guard(options_.device);
    if (reserved_) drain();
    if (status failed = allocate(needs); !failed.ok()) return failed;
    if (status failed = preload(needs.keys); !failed.ok()) return failed;
    reserved_ = true;
    return {};
  }

  lane open(stream_ref stream) { return {*this, static_cast<cudaStream_t>(stream.handle)}; }
  lane open_own() { return {*this, own_stream_}; }

  status begin(std::span<const stream_ref> readers) {
    if (!reserved_) return not_reserved();
    std::fill(flags().begin(), flags().end(), 0U);
    return hold(readers);
  }

  status hold(std::span<const stream_ref> readers) {
    const detail::device_guard guard(options_.device);
    if (readers.size() > reader_events_.size())
      return refuse(error_code::bad_argument, {}, "at most " + std::to_string(most_readers) + " reader streams",
                    std::to_string(readers.size()));
    if (!reserved_) return not_reserved();
    ++readers_generation_;
    reader_count_ = readers.size();
    for (std::size_t i = 0; i < readers.size(); ++i)
      if (status failed = check(cudaEventRecord(reader_events_[i], static_cast<cudaStream_t>(readers[i].handle)),
                                "cudaEventRecord on a reader's stream");
          !failed.ok())
        return failed;
    return {};
  }

  status cancel() {
    if (!reserved_) return {};
    book_.cancel();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(most_cancel_seconds);
    for (std::int32_t record = 0; record < detail::launch_book::records; ++record) {
      detail::backoff pause;
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

  status check_idle(std::span<const stream_ref> streams) const {
    const detail::device_guard guard(options_.device);
    for (const stream_ref stream : streams)
      if (status refused = check_not_capturing(static_cast<cudaStream_t>(stream.handle)); !refused.ok()) return refused;
    return {};
  }

  status land(lane& on, std::span<const land_job> jobs);

  /// In one pass where the source is copied as it is, in whole rows that begin at multiples of 16 bytes in storage and of
  /// 4 in the source. Else (and from pageable memory) the source is read twice.
  status land_digested(lane& on, std::span<const land_job> jobs, std::span<const land_digest> into);

  status compare(lane& on, std::span<const land_job> jobs, std::span<const std::int32_t> flags);

  status fill(lane& on, std::span<const fill_job> jobs);

  status combine(lane& on, std::span<const combine_job> jobs);

  status dequantise(lane& on, const dequant_key& key, std::span<const dequant_job> jobs);

  void keep(lane& on, table* into) const { on.kept_ = into; }

  status replay(lane& on, const table& kept, std::ptrdiff_t shift) {
    const detail::device_guard guard(options_.device);
    if (status refused = prepare(on, true); !refused.ok()) return refused;
    for (const cuda_table::launch& each : kept.launches)
      if (status failed = launch_again(on, each, shift); !failed.ok()) return failed;
    return {};
  }
  bool keeps_tables() const { return plan_memory_.bytes() > 0; }
  std::int64_t kept_bytes() {
    const std::lock_guard guard(lock_);
    give_back_kept();
    return kept_bytes_;
  }
  void drop_kept(std::int64_t mark) {
    const std::lock_guard guard(lock_);
    dropped_from_ = std::min(dropped_from_, mark);
    give_back_kept();
  }

  static constexpr bool converts_from(memory_kind where) { return where != memory_kind::pageable; }

  status wait_for(lane& on, event_ref event) {
    const detail::device_guard guard(options_.device);
    if (status refused = prepare(on, false); !refused.ok()) return refused;
    return check(cudaStreamWaitEvent(on.stream_, static_cast<cudaEvent_t>(event.handle), 0), "cudaStreamWaitEvent");
  }

  status join(lane& on, lane& other) {
    const detail::device_guard guard(options_.device);
    if (status refused = prepare(on, false); !refused.ok()) return refused;
    if (status refused = prepare(other, false); !refused.ok()) return refused;
    cudaEvent_t event = lanes_.next_event(other.slot_);
    if (status failed = check(cudaEventRecord(event, other.stream_), "cudaEventRecord"); !failed.ok()) return failed;
    return check(cudaStreamWaitEvent(on.stream_, event, 0), "cudaStreamWaitEvent");
  }

  /// Null where the event could not be recorded; the next call on the lane then says why.
  event_ref record(lane& on) {
    const detail::device_guard guard(options_.device);
    if (on.slot_ < 0) return {};
    cudaEvent_t event = lanes_.next_event(on.slot_);
    return {cudaEventRecord(event, on.stream_) == cudaSuccess ? event : nullptr};
  }

  stream_ref stream_of(lane& on) const { return {on.stream_}; }

  status wait(lane& on) {
    const detail::device_guard guard(options_.device);
    if (status refused = prepare(on, false); !refused.ok()) return refused;
    cudaEvent_t event = lanes_.next_event(on.slot_);
    if (status failed = check(cudaEventRecord(event, on.stream_), "cudaEventRecord"); !failed.ok()) return failed;
    return retry(on, [&](status& failed) {
      const cudaError_t error = cudaEventQuery(event);
      if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();  // CUDA may keep it as the thread's last error
        return false;
      }
      failed = check(error, "work on a lane's stream");
      return true;
    });
  }

  status read(lane& on, std::byte* host, const std::byte* data, std::int64_t bytes) {
    const detail::device_guard guard(options_.device);
    if (status failed = wait(on); !failed.ok()) return failed;  // a copy of pageable memory waits, and no cancel ends that
    const cudaError_t error =
        cudaMemcpyAsync(host, data, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, on.stream_);
    if (status failed = check(error, "cudaMemcpyAsync"); !failed.ok()) return failed;
    return wait(on);
  }

  status write(lane& on, std::byte* data, const std::byte* host, std::int64_t bytes) {
    const detail::device_guard guard(options_.device);
    if (status failed = wait(on); !failed.ok()) return failed;  // a copy of pageable memory waits, and no cancel ends that
    const cudaError_t error =
        cudaMemcpyAsync(data, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, on.stream_);
    if (status failed = check(error, "cudaMemcpyAsync"); !failed.ok()) return failed;
    return wait(on);
  }

  status allocate(std::int64_t bytes, memory_kind where, std::byte** memory) {
    const detail::device_guard guard(options_.device);
    return aside_.allocate(bytes, where, own_stream_, book_.all_done(), memory);
  }
  void release(std::byte* memory) {
    const detail::device_guard guard(options_.device);
    aside_.release(memory, own_stream_, book_.all_done());
  }

  status digest(lane& on, std::span<const digest_job> jobs, std::span<std::uint64_t> sums);

  status first_difference(lane& on, const difference_job& pair, std::int64_t* first);

  /// Pinned memory that kernels write.
  std::span<std::uint32_t> flags() {
    return {control_.words() + (flag_count_ == 0 ? 0 : detail::launch_book::words), flag_count_};
  }

  std::int64_t allocated_bytes() const {
    std::int64_t bytes = 0;
    for (const detail::cuda_memory* memory : {&control_, &counters_, &table_host_, &table_device_, &window_memory_, &map_memory_,
                                             &plan_memory_})
      bytes += memory->bytes();
    return bytes + aside_.bytes();
  }
  std::int64_t launches() const { return launches_.load(std::memory_order_relaxed); }
  int device() const { return options_.device; }

 private:
  // Objects, so that members are read without naming a hidden type.
  static constexpr std::int64_t none_dropped = INT64_MAX;
  static constexpr tuning::land_rows land_choice = {};
  static constexpr tuning::fill_rows fill_choice = {};
  static constexpr tuning::dequant_rows dequant_choice = {};
  static constexpr tuning::combine_scalars combine_choice = {};
  static constexpr tuning::digest_tiles digest_choice = {};
  static constexpr tuning::first_difference difference_choice = {};

  /// Tasks of one launch, in the launch's parameter or in a piece of the tables; drops its record if it never launches.
  template <class Task>
  struct batch {
    explicit batch(detail::launch_book& launches) : book(launches) {}
    batch(const batch&) = delete;             // one record
    batch& operator=(const batch&) = delete;
    ~batch() {
      if (id.record >= 0) book.drop(id);
    }
    detail::launch_book& book;
    detail::launch_id id = {};
    kernel::work<Task> todo = {};
    Task* tasks = nullptr;
    std::uint32_t capacity = 0;
    std::int64_t offset = -1;  ///< in the tables; -1: inline
    std::byte* window = nullptr;  ///< room for staged rows that belongs to this launch
    std::int64_t window_left = 0;
  };

  /// A piece of the tables that no launch owns.
  struct held_piece {
    explicit held_piece(detail::launch_book& launches) : book(launches) {}
    held_piece(const held_piece&) = delete;
    held_piece& operator=(const held_piece&) = delete;
    ~held_piece() {
      if (id.record >= 0) book.drop(id);
    }
    detail::launch_book& book;
    detail::launch_id id = {};
    std::int64_t offset = -1;
  };

  static status check(cudaError_t error, std::string_view call) { return detail::cuda_status(error, call); }
  static status not_reserved() {
    return refuse(error_code::wrong_state, {}, "an executor that was reserved", "one that was not");
  }
  static status aborted() { return refuse(error_code::aborted, {}, "an open update", "one that was cancelled"); }

  std::array<detail::cuda_memory*, 7> all_memory() {
    return {&control_, &counters_, &table_host_, &table_device_, &window_memory_, &map_memory_, &plan_memory_};
  }
  std::uint32_t epoch() const { return control_.data() == nullptr ? 0 : book_.epoch(); }

  /// Waits until no launch is queued or running, or the device has failed.
  void drain() const {
    for (detail::backoff pause; !book_.all_done(); pause())
      if (pause.is_long() && !device_error().ok()) return;
  }

  /// A sticky error of the device, if it has one.
  status device_error() const {
    const detail::device_guard guard(options_.device);
    const cudaError_t error = cudaStreamQuery(own_stream_);
    if (error == cudaErrorNotReady) (void)cudaGetLastError();
    return error == cudaErrorNotReady ? status{} : check(error, "a kernel");
  }

  static status check_not_capturing(cudaStream_t stream) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &capture);
    if (error == cudaErrorStreamCaptureImplicit || (error == cudaSuccess && capture != cudaStreamCaptureStatusNone)) {
      (void)cudaGetLastError();
      return refuse(error_code::wrong_state, {}, "streams that are not being captured", "one that is");
    }
    return check(error, "cudaStreamIsCapturing");
  }

  status allocate(const executor_needs& needs) {
    using memory = detail::launch_book;
    constexpr std::int64_t word = sizeof(std::uint32_t);
    std::int64_t table = options_.table_bytes;
    if (table == 0) {
      table = needs.dequant_jobs * std::int64_t{sizeof(kernel::dequant_task)} +
              needs.land_jobs * std::int64_t{sizeof(kernel::land_task)};
      table = std::clamp<std::int64_t>(table * 5 / 4, std::int64_t{256} << 10, std::int64_t{64} << 20);
    }
    table = (std::max<std::int64_t>(table, 4096) + 255) / 256 * 256;
    flag_count_ = static_cast<std::size_t>(needs.flags);
    const std::pair<detail::cuda_memory*, std::int64_t> sizes[] = {
        {&control_, (std::int64_t{memory::words} + needs.flags) * word},
        {&counters_, memory::records * kernel::counter::words * word},
        {&table_host_, table},
        {&table_device_, table},
        {&window_memory_, options_.window_bytes},
        {&map_memory_, static_cast<std::int64_t>(needs.maps.size_bytes())},
        {&plan_memory_, options_.plan_bytes}};
    for (const auto& [which, bytes] : sizes)
      if (status failed = which->allocate(bytes); !failed.ok()) return failed;
    book_.use(control_.words());
    tables_.use(table);
    window_.use(options_.window_bytes);
    kept_bytes_ = 0;
    dropped_from_ = none_dropped;
    std::fill(flags().begin(), flags().end(), 0U);

    if (own_stream_ == nullptr)
      if (status failed = check(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
          !failed.ok())
        return failed;
    for (cudaEvent_t& event : reader_events_)
      if (event == nullptr)
        if (status failed = check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
            !failed.ok())
          return failed;
    if (status failed = lanes_.make(); !failed.ok()) return failed;
    if (status failed = check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount,
                                                     options_.device), "cudaDeviceGetAttribute");
        !failed.ok())
      return failed;
    const auto bytes = static_cast<std::size_t>(counters_.bytes());
    if (status failed = check(cudaMemsetAsync(counters_.data(), 0, bytes, own_stream_), "cudaMemsetAsync");
        !failed.ok())
      return failed;
    maps_.assign(needs.maps.begin(), needs.maps.end());
    if (!maps_.empty())
      if (status failed = check(cudaMemcpyAsync(map_memory_.data(), maps_.data(), needs.maps.size_bytes(),
                                                cudaMemcpyHostToDevice, own_stream_), "cudaMemcpyAsync");
          !failed.ok())
        return failed;
    return check(cudaStreamSynchronize(own_stream_), "cudaStreamSynchronize");
  }

  static status preload(std::span<const dequant_key> keys);

  /// Whether the lane may take work; before its first write of an update it waits for the readers.
  status prepare(lane& on, bool writes) {
    if (!reserved_) return not_reserved();
    if (on.slot_ < 0)
      return refuse(error_code::out_of_memory, {}, "at most " + std::to_string(lanes_.most) + " open lanes", "one more");
    if (on.epoch_ != book_.epoch()) return aborted();
    if (status refused = check_not_capturing(on.stream_); !refused.ok()) {
      refused.code = error_code::execution_failed;  // the update has claimed the bytes by now
      return refused;
    }
    if (!writes || on.readers_seen_ == readers_generation_) return {};
    for (std::size_t i = 0; i < reader_count_; ++i)
      if (status failed = check(cudaStreamWaitEvent(on.stream_, reader_events_[i], 0), "cudaStreamWaitEvent");
          !failed.ok())
        return failed;
    on.readers_seen_ = readers_generation_;
    return {};
  }

  /// Calls `attempt(error)` until it is true; gives up when the update is cancelled or the device has failed.
  template <class Attempt>
  status retry(const lane& on, Attempt&& attempt) {
    status failed;
    for (detail::backoff pause; !attempt(failed); pause()) {
      if (on.epoch_ != book_.epoch()) return aborted();
      if (pause.is_long())
        if (status broken = device_error(); !broken.ok()) return broken;
    }
    return failed;
  }

  status take_record(const lane& on, detail::launch_id& id) {
    return retry(on, [&](status&) {
      const std::lock_guard guard(lock_);
      id = book_.take();
      return id.record >= 0;
    });
  }

  /// A piece of the tables that is held until it goes out of scope. May wait.
  status hold(const lane& on, held_piece& piece, std::int64_t bytes) {
    if (status failed = take_record(on, piece.id); !failed.ok()) return failed;
    return retry(on, [&](status&) {
      const std::lock_guard guard(lock_);
      piece.offset = tables_.take(bytes, piece.id, book_);
      return piece.offset >= 0;
    });
  }

  status copy(const lane& on, void* to, const void* from, std::size_t bytes) {
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on.stream_), "cudaMemcpyAsync");
  }

  /// Gives an empty batch a record and room for `expected` tasks, or for as many as a parameter takes.
  template <class Task>
  status start(const lane& on, batch<Task>& tasks, std::size_t expected) {
    if (status failed = take_record(on, tasks.id); !failed.ok()) return failed;
    tasks.tasks = tasks.todo.inline_tasks;
    tasks.capacity = kernel::work<Task>::most_inline;
    tasks.offset = -1;
    tasks.todo.count = 0;
    tasks.todo.units = 0;
    if (expected <= tasks.capacity) return {};
    const std::int64_t room = std::min(static_cast<std::int64_t>(expected), tables_.size() / std::int64_t{sizeof(Task)});
    const std::lock_guard guard(lock_);
    tasks.offset = tables_.take(room * std::int64_t{sizeof(Task)}, tasks.id, book_);
    if (tasks.offset < 0) return {};
    tasks.tasks = reinterpret_cast<Task*>(table_host_.data() + tasks.offset);
    tasks.capacity = static_cast<std::uint32_t>(room);
    return {};
  }

  /// Launches a full batch and starts the next one.
  template <class Task, class Flush>
  status make_room(const lane& on, batch<Task>& tasks, std::size_t expected, Flush&& flush) {
    if (tasks.id.record >= 0 && (tasks.todo.count == tasks.capacity || tasks.todo.units > kernel::most_units))
      if (status failed = flush(); !failed.ok()) return failed;
    return tasks.id.record < 0 ? start(on, tasks, expected) : status{};
  }

  /// Adds a task; launches before that where there is no room. `expected`: this and the tasks that may follow.
  template <class Task, class Flush>
  status add(const lane& on, batch<Task>& tasks, const Task& task, std::size_t expected, Flush&& flush) {
    if (status failed = make_room(on, tasks, expected, flush); !failed.ok()) return failed;
    Task& added = tasks.tasks[tasks.todo.count++];
    added = task;
    added.first_unit = tasks.todo.units;
    tasks.todo.units += static_cast<std::uint32_t>(task.units());
    return {};
  }

  /// Launches what a batch holds and empties it.
  template <class Task, class Choice, class... Parameters>
  status launch(const lane& on, batch<Task>& tasks, const Choice&, void (*function)(kernel::work<Task>, Parameters...),
                const Parameters&... parameters) {
    if (tasks.id.record < 0 || tasks.todo.count == 0) return {};
    tasks.todo.gate = gate_of(on, tasks.id);
    tasks.todo.tasks = nullptr;
    if (tasks.offset >= 0) {
      std::byte* kept = on.kept_ == nullptr ? nullptr : take_kept(*on.kept_, tasks.todo.count * sizeof(Task));
      auto* device = reinterpret_cast<Task*>(kept != nullptr ? kept : table_device_.data() + tasks.offset);
      if (status failed = copy(on, device, tasks.tasks, tasks.todo.count * sizeof(Task)); !failed.ok()) return failed;
      tasks.todo.tasks = device;
    }
    constexpr std::uint32_t units_per_block = Choice::units_per_block;
    const auto most = static_cast<std::uint32_t>(multiprocessors_ * Choice::blocks_per_multiprocessor);
    const std::uint32_t blocks = std::min((tasks.todo.units + units_per_block - 1) / units_per_block, most);
    const cudaError_t error =
        kernel::launch(function, blocks, Choice::block_threads, on.stream_, tasks.todo, parameters...);
    if (status failed = check(error, "cudaLaunchKernel"); !failed.ok()) return failed;
    tasks.id = {};  // the device ends the record now
    if (on.kept_ != nullptr && on.kept_->whole)
      on.kept_->add(function, blocks, Choice::block_threads, tasks.todo, parameters...);
    tasks.window = nullptr;
    tasks.window_left = 0;
    launches_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }

  kernel::gate gate_of(const lane& on, detail::launch_id id) {
    return {book_.state_word(id.record), book_.epoch_word(),
            counters_.words() + kernel::counter::words * static_cast<std::size_t>(id.record), on.epoch_};
  }

  /// Room for tasks that outlive their launch; null where there is none, and the table is not whole.
  std::byte* take_kept(table& into, std::size_t bytes) {
    const std::lock_guard guard(lock_);
    const std::int64_t rounded = static_cast<std::int64_t>((bytes + 255) / 256 * 256);
    if (plan_memory_.bytes() - kept_bytes_ < rounded) into.whole = false;
    if (!into.whole) return nullptr;
    dropped_from_ = none_dropped;  // what lies below stays taken until all is dropped
    return plan_memory_.data() + std::exchange(kept_bytes_, kept_bytes_ + rounded);
  }
  /// A queued launch of a cancelled update reads no task, but the copy of its tasks to the device may still come.
  void give_back_kept() {
    if (dropped_from_ < kept_bytes_ && !book_.all_done()) return;
    kept_bytes_ = std::min(kept_bytes_, dropped_from_);
    dropped_from_ = none_dropped;
  }

  /// A kept launch, with a gate of its own.
  status launch_again(const lane& on, const cuda_table::launch& kept, std::ptrdiff_t shift) {
    held_piece record(book_);
    if (status failed = take_record(on, record.id); !failed.ok()) return failed;
    alignas(16) std::byte todo[cuda_table::parameter_bytes];  // what lies behind the kept bytes is not read
    std::memcpy(todo, kept.todo.data(), kept.todo.size());
    const kernel::gate gate = gate_of(on, record.id);
    std::memcpy(todo, &gate, sizeof gate);
    std::memcpy(todo + sizeof gate, &shift, sizeof shift);
    const void* arguments[] = {todo, kept.parameter.data()};
    const cudaError_t error = cudaLaunchKernel(kept.function, dim3(kept.blocks), dim3(kept.threads),
                                               const_cast<void**>(arguments), 0, on.stream_);
    if (status failed = check(error, "cudaLaunchKernel"); !failed.ok()) return failed;
    record.id = {};  // the device ends the record now
    launches_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }

  /// Lands or compares, per `Sink`.
  template <class Sink, class FlagOf>
  status put(lane& on, std::span<const land_job> jobs, FlagOf&& flag_of, bool writes) {
    const detail::device_guard guard(options_.device);
    if (status refused = prepare(on, writes); !refused.ok()) return refused;
    std::int64_t to_stage = 0;  // bytes, at most
    for (const land_job& job : jobs)
      if (job.memory == memory_kind::pageable) {
        to_stage += job.rows * job.cols * bytes_of(job.from);
        if (on.kept_ != nullptr) on.kept_->whole = false;
      }
    batch<kernel::land_task> tasks(book_);
    std::uint32_t* flag_words = flags().data();
    const auto flush = [&] {
      return launch(on, tasks, land_choice, &kernel::land_rows<Sink>, flag_words);
    };
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const auto land = [&](const land_job& job, const rect& = {}) {
        kernel::land_task task = kernel::make_task(job, host_map(job.map), device_map(job.map));
        task.flag = flag_of(i);
        return add(on, tasks, task, jobs.size() - i, flush);
      };
      if (jobs[i].rows <= 0 || jobs[i].cols <= 0) continue;
      status failed = is_read_by_host(jobs[i]) ? stage(on, tasks, jobs[i], to_stage, jobs.size() - i, land, flush)
                                               : land(jobs[i]);
      if (!failed.ok()) return failed;
    }
    return flush();
  }

  const storage_map* host_map(map_index map) const {
    return map == unmapped ? nullptr : &maps_[static_cast<std::size_t>(map)];
  }
  const storage_map* device_map(map_index map) const {
    return map == unmapped ? nullptr : reinterpret_cast<const storage_map*>(map_memory_.data()) + map;
  }

  static bool is_read_by_host(const land_job& job) {
    if (job.memory != memory_kind::pageable) return false;
    cudaPointerAttributes found = {};
    if (cudaPointerGetAttributes(&found, job.source) == cudaSuccess) return found.type == cudaMemoryTypeUnregistered;
    (void)cudaGetLastError();
    return true;
  }

  /// Copies a job's source into the window, piece by piece, and calls `land(job, part)` for each. Waits where the window is full.
  template <class Land, class Flush>
  status stage(const lane& on, batch<kernel::land_task>& tasks, const land_job& job, std::int64_t& to_stage,
               std::size_t expected, Land&& land, Flush&& flush) {
    const std::int64_t most = window_.size() / 4 / 256 * 256;
    if (most == 0)
      return refuse(error_code::execution_failed, {}, "window_bytes of 1024 or more for a pageable source",
                    std::to_string(options_.window_bytes));
    const std::int64_t element = bytes_of(job.from);
    const std::int64_t cols = std::min(job.cols, most / element);
    const std::int64_t rows = std::max<std::int64_t>(most / (cols * element), 1);
    for (std::int64_t r = 0; r < job.rows; r += cols == job.cols ? rows : 1)
      for (std::int64_t c = 0; c < job.cols; c += cols) {
        const rect part{r, std::min(job.rows, r + (cols == job.cols ? rows : 1)), c, std::min(job.cols, c + cols)};
        const std::int64_t bytes = part.elements() * element;
        // Rows that are staged belong to the launch that lands them: room for its task comes first.
        if (tasks.window != nullptr && tasks.window_left < bytes)
          if (status failed = flush(); !failed.ok()) return failed;
        if (status failed = make_room(on, tasks, expected, flush); !failed.ok()) return failed;
        if (tasks.window_left < bytes) {
          const std::int64_t piece = std::clamp(to_stage + 16 * static_cast<std::int64_t>(expected), bytes, most);
          if (status failed = take_window(on, tasks, piece); !failed.ok()) return failed;
        }
        if (on.epoch_ != book_.epoch()) return aborted();
        detail::stage_rows(job, part, tasks.window);
        if (status failed = land(detail::staged_job(job, part, tasks.window), part); !failed.ok()) return failed;
        const std::int64_t taken = std::min((bytes + 15) / 16 * 16, tasks.window_left);
        tasks.window += taken;
        tasks.window_left -= taken;
        to_stage -= bytes;
      }
    return {};
  }

  status take_window(const lane& on, batch<kernel::land_task>& tasks, std::int64_t bytes) {
    return retry(on, [&](status&) {
      const std::lock_guard guard(lock_);
      const std::int64_t offset = window_.take(bytes, tasks.id, book_);
      if (offset < 0) return false;
      tasks.window = window_memory_.data() + offset;
      tasks.window_left = bytes;
      return true;
    });
  }

  template <class Stored, class Runtime, class Scale>
  status convert(lane& on, const dequant_key& key, std::span<const dequant_job> jobs) {
    const detail::device_guard guard(options_.device);
    if (status refused = prepare(on, true); !refused.ok()) return refused;
    const kernel::dequant_blocks blocks{kernel::block_divisor(static_cast<std::uint32_t>(key.block_rows)),
                                        kernel::block_divisor(static_cast<std::uint32_t>(key.block_cols))};
    batch<kernel::dequant_task> tasks(book_);
    const auto flush = [&] {
      return launch(on, tasks, dequant_choice, &kernel::dequant_rows<Stored, Runtime, Scale>, blocks);
    };
    constexpr std::int64_t most = kernel::most_dequant_extent;
    std::int64_t elements = 0;
    for (const dequant_job& job : jobs) elements += job.rows * job.cols;
    const std::int64_t unit = kernel::dequant_unit_elements(elements, multiprocessors_ * dequant_choice.blocks_per_multiprocessor);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const dequant_job& job = jobs[i];
      if (job.rows <= 0 || job.cols <= 0) continue;
      if (job.cols > most || key.block_rows > most || key.block_cols > most)
        return refuse(error_code::unsupported, {}, "at most 2^28 columns and rows a block", std::to_string(job.cols));
      for (std::int64_t row = 0; row < job.rows; row += most) {
        dequant_job part = job;
        part.rows = std::min(job.rows - row, most);
        part.source += row * job.source_row_stride_bytes;
        part.destination += row * job.destination_row_stride_bytes;
        if (key.block_rows > 0) {
          part.scale += (job.row_phase + row) / key.block_rows * job.scale_row_stride_bytes;
          part.row_phase = static_cast<std::int32_t>((job.row_phase + row) % key.block_rows);
        }
        if (status failed = add(on, tasks, kernel::make_task(part, key, unit), jobs.size() - i, flush); !failed.ok())
          return failed;
      }
    }
    return flush();
  }

  cuda_options options_;
  bool reserved_ = false;
  int multiprocessors_ = 0;
  cudaStream_t own_stream_ = nullptr;  ///< non-blocking: waits for no stream of the caller's
  std::array<cudaEvent_t, most_readers> reader_events_ = {};
  std::size_t reader_count_ = 0;
  std::uint64_t readers_generation_ = 0;
  detail::cuda_lanes lanes_ = {};
  detail::cuda_memory control_{detail::cuda_memory::kind::pinned};       ///< the book's words, then flags
  detail::cuda_memory counters_{detail::cuda_memory::kind::device};      ///< `counter::words` per record
  detail::cuda_memory table_host_{detail::cuda_memory::kind::pinned};
  detail::cuda_memory table_device_{detail::cuda_memory::kind::device};
  detail::cuda_memory window_memory_{detail::cuda_memory::kind::pinned};
  detail::cuda_memory map_memory_{detail::cuda_memory::kind::device};
  detail::cuda_memory plan_memory_{detail::cuda_memory::kind::device};   ///< tasks of kept tables, one after the other
  detail::cuda_aside aside_ = {};                                        ///< what updates keep aside
  std::vector<storage_map> maps_ = {};
  std::size_t flag_count_ = 0;
  std::atomic<std::int64_t> launches_ = 0;
  std::mutex lock_ = {};  ///< of the five below
  std::int64_t kept_bytes_ = 0;               ///< of the plan memory
  std::int64_t dropped_from_ = none_dropped;  ///< what is taken from there on can be given back
  detail::launch_book book_ = {};
  detail::lent_memory tables_ = {};
  detail::lent_memory window_ = {};
};

// What launches kernels stands out here, so that a program of many files compiles them once: each file says
//     extern template class wreload::basic_cuda_executor<>;
// and one of them `template class wreload::basic_cuda_executor<>;`.

template <class Use>
status basic_cuda_executor<Use>::land(lane& on, std::span<const land_job> jobs) {
  return put<kernel::write_sink>(on, jobs, [](std::size_t) { return 0; }, true);
}

template <class Use>
status basic_cuda_executor<Use>::compare(lane& on, std::span<const land_job> jobs, std::span<const std::int32_t> flags) {
  return put<kernel::compare_sink>(on, jobs, [flags](std::size_t i) { return flags[i]; }, false);
}

template <class Use>
status basic_cuda_executor<Use>::fill(lane& on, std::span<const fill_job> jobs) {
  const detail::device_guard guard(options_.device);
  if (status refused = prepare(on, true); !refused.ok()) return refused;
  batch<kernel::fill_task> tasks(book_);
  const auto flush = [&] { return launch(on, tasks, fill_choice, &kernel::fill_rows<fill_choice.block_threads>); };
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].rows <= 0 || jobs[i].row_bytes <= 0) continue;
    if (status failed = add(on, tasks, kernel::make_task(jobs[i]), jobs.size() - i, flush); !failed.ok())
      return failed;
  }
  return flush();
}

template <class Use>
status basic_cuda_executor<Use>::combine(lane& on, std::span<const combine_job> jobs) {
  const detail::device_guard guard(options_.device);
  if (status refused = prepare(on, true); !refused.ok()) return refused;
  batch<kernel::combine_task> tasks(book_);
  const auto flush = [&] {
    return launch(on, tasks, combine_choice, &kernel::combine_scalars<combine_choice.block_threads>);
  };
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].count <= 0) continue;
    if (status failed = add(on, tasks, kernel::make_task(jobs[i]), jobs.size() - i, flush); !failed.ok())
      return failed;
  }
  return flush();
}

template <class Use>
status basic_cuda_executor<Use>::dequantise(lane& on, const dequant_key& key, std::span<const dequant_job> jobs) {
  status result;
  const bool known = visit_dequant(key.stored, key.runtime, key.scale, [&](auto stored, auto runtime, auto scale) {
    result = convert<decltype(stored), decltype(runtime), decltype(scale)>(on, key, jobs);
  });
  if (known) return result;
  return refuse(error_code::unsupported, {}, "a conversion that is compiled in",
                std::string(name_of(key.stored)) + " to " + std::string(name_of(key.runtime)));
}

template <class Use>
status basic_cuda_executor<Use>::land_digested(lane& on, std::span<const land_job> jobs,
                                               std::span<const land_digest> into) {
  const detail::device_guard guard(options_.device);
  if (status refused = prepare(on, true); !refused.ok()) return refused;
  batch<kernel::land_task> landings(book_);
  batch<kernel::digest_task> digests(book_);
  std::uint32_t* flag_words = flags().data();
  const auto flush_digests = [&] {
    return launch(on, digests, digest_choice, &kernel::digest_tiles<digest_choice.block_threads>);
  };
  // First what reads sources again: the window that a landing holds is free once that has run.
  const auto flush = [&] {
    status failed = flush_digests();
    return failed.ok() ? launch(on, landings, land_choice, &kernel::land_rows<kernel::write_sink>, flag_words) : failed;
  };
  constexpr std::int64_t most_task_bytes = std::max(sizeof(kernel::land_task), sizeof(kernel::digest_task));
  std::int64_t to_stage = 0;
  for (const land_job& job : jobs)
    if (job.memory == memory_kind::pageable) to_stage += job.rows * job.cols * bytes_of(job.from);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].rows <= 0 || jobs[i].cols <= 0) continue;
    // A quarter of the tables for the tasks of a launch: two kinds of them are filled side by side.
    const std::size_t left = std::min(jobs.size() - i, static_cast<std::size_t>(tables_.size() / 4 / most_task_bytes));
    const auto land = [&](const land_job& job, const land_digest& where, bool is_staged) {
      const storage_map* map = host_map(job.map);
      kernel::digest_task task =
          kernel::make_task(detail::digest_of_source(job, where), static_cast<const storage_map*>(nullptr), nullptr,
                            where.sums + detail::first_sum(where), where.tiles_across);
      const bool lands = !is_staged && !where.is_transposed &&
                         kernel::land_with(task, job, map, device_map(job.map));
      if (status failed = add(on, digests, task, left, flush_digests); lands || !failed.ok()) return failed;
      return add(on, landings, kernel::make_task(job, map, device_map(job.map)), left, flush);
    };
    const auto land_staged = [&](const land_job& job, const rect& part) {
      land_digest where = into[i];
      where.row += where.is_transposed ? part.col_begin : part.row_begin;
      where.col += where.is_transposed ? part.row_begin : part.col_begin;
      return land(job, where, true);
    };
    status failed = is_read_by_host(jobs[i]) ? stage(on, landings, jobs[i], to_stage, left, land_staged, flush)
                                             : land(jobs[i], into[i], false);
    if (!failed.ok()) return failed;
  }
  return flush();
}

template <class Use>
status basic_cuda_executor<Use>::digest(lane& on, std::span<const digest_job> jobs, std::span<std::uint64_t> sums) {
  const detail::device_guard guard(options_.device);
  // A sixteenth of the tables for sums, of which a job may have many; a quarter for the tasks of a launch, so that the next
  // one finds room beside it.
  const std::int64_t room = std::max<std::int64_t>(tables_.size() / 16 / std::int64_t{sizeof(std::uint64_t)}, 16);
  const auto most = static_cast<std::size_t>(tables_.size() / 4 / std::int64_t{sizeof(kernel::digest_task)});
  std::size_t next = 0;  // job
  std::int64_t row = 0, col = 0;  // of it: what is left begins at this tile
  while (next < jobs.size()) {
    if (status refused = prepare(on, false); !refused.ok()) return refused;
    held_piece results(book_);
    const std::int64_t tiles = std::min(room, static_cast<std::int64_t>(sums.size()));
    const auto bytes = static_cast<std::size_t>(tiles) * sizeof(std::uint64_t);
    if (tiles == 0) return {};
    if (status failed = hold(on, results, static_cast<std::int64_t>(bytes)); !failed.ok()) return failed;
    auto* found = reinterpret_cast<std::uint64_t*>(table_host_.data() + results.offset);
    auto* device = reinterpret_cast<std::uint64_t*>(table_device_.data() + results.offset);
    if (status failed = check(cudaMemsetAsync(device, 0, bytes, on.stream_), "cudaMemsetAsync"); !failed.ok()) return failed;
    batch<kernel::digest_task> tasks(book_);
    const auto flush = [&] {
      return launch(on, tasks, digest_choice, &kernel::digest_tiles<digest_choice.block_threads>);
    };
    std::int64_t taken = 0;
    while (next < jobs.size() && taken < tiles) {
      const detail::tile_run run = detail::next_tiles(jobs[next], row, col, tiles - taken);
      if (run.tiles > 0)
        if (status failed = add(on, tasks, kernel::make_task(run.part, host_map(run.part.map), device_map(run.part.map),
                                                             device + taken, digest_grid_of(run.part).across),
                                std::min(jobs.size() - next, most), flush); !failed.ok())
          return failed;
      taken += run.tiles;
      if (run.is_last) ++next;
      row = run.is_last ? 0 : run.row;
      col = run.is_last ? 0 : run.col;
    }
    if (status failed = flush(); !failed.ok()) return failed;
    if (taken > 0) {
      const auto filled = static_cast<std::size_t>(taken);
      if (status failed = copy(on, found, device, filled * sizeof(std::uint64_t)); !failed.ok()) return failed;
      if (status failed = wait(on); !failed.ok()) return failed;
      std::memcpy(sums.data(), found, filled * sizeof(std::uint64_t));
      sums = sums.subspan(filled);
    }
  }
  return {};
}

template <class Use>
status basic_cuda_executor<Use>::first_difference(lane& on, const difference_job& pair, std::int64_t* first) {
  *first = -1;
  if (pair.rows <= 0 || pair.row_bytes <= 0) return {};
  const detail::device_guard guard(options_.device);
  if (status refused = prepare(on, false); !refused.ok()) return refused;
  held_piece result(book_);
  if (status failed = hold(on, result, sizeof(std::uint64_t)); !failed.ok()) return failed;
  auto* host = reinterpret_cast<unsigned long long*>(table_host_.data() + result.offset);
  auto* device = reinterpret_cast<unsigned long long*>(table_device_.data() + result.offset);
  *host = ~0ULL;
  if (status failed = copy(on, device, host, sizeof *host); !failed.ok()) return failed;
  batch<kernel::difference_task> tasks(book_);
  const auto flush = [&] {
    return launch(on, tasks, difference_choice, &kernel::first_difference<difference_choice.block_threads>, device);
  };
  if (status failed = add(on, tasks, kernel::make_task(pair), 1, flush); !failed.ok()) return failed;
  if (status failed = flush(); !failed.ok()) return failed;
  if (status failed = copy(on, host, device, sizeof *host); !failed.ok()) return failed;
  if (status failed = wait(on); !failed.ok()) return failed;
  if (*host != ~0ULL) *first = static_cast<std::int64_t>(*host);
  return {};
}

template <class Use>
status basic_cuda_executor<Use>::preload(std::span<const dequant_key> keys) {
  const auto load = [](auto* function) { return check(kernel::preload(function), "cudaFuncGetAttributes"); };
  status failed = load(&kernel::land_rows<kernel::write_sink>);
  if (failed.ok()) failed = load(&kernel::land_rows<kernel::compare_sink>);
  if (failed.ok()) failed = load(&kernel::fill_rows<fill_choice.block_threads>);
  if (failed.ok()) failed = load(&kernel::combine_scalars<combine_choice.block_threads>);
  if (failed.ok()) failed = load(&kernel::digest_tiles<digest_choice.block_threads>);
  if (failed.ok()) failed = load(&kernel::first_difference<difference_choice.block_threads>);
  for (const dequant_key& key : keys)
    visit_dequant(key.stored, key.runtime, key.scale, [&](auto stored, auto runtime, auto scale) {
      if (failed.ok())
        failed = load(&kernel::dequant_rows<decltype(stored), decltype(runtime), decltype(scale)>);
    });
  return failed;
}

using cuda_executor = basic_cuda_executor<>;

static_assert(executor<cuda_executor>);

}  // namespace wreload
