#pragma once
/// `feed`: the way of a checkpoint's files to the device.

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../update/options.hpp"
#include "copy_runs.hpp"
#include "feed_options.hpp"
#include "feed_plan.hpp"
#include "pinned_windows.hpp"
#include "plan_feed.hpp"

namespace wreload {

/// What a feed needs of a device. On another thread than that of `send` only `enter_thread`, `pin`, `unpin` and
/// `is_read` are called.
///
///   reads_mappings       the executor reads any host memory at once: nothing else is called
///   prepare(batches)     a send of so many batches begins
///   enter_thread()       the calling thread is going to pin
///   pin(pages)           pins pages of a read-only file mapping so that the device reads them at their address; false
///                        where that is not possible
///   unpin(pages)         Requires: nothing reads them any more
///   copy(batch, runs, from, to, after, ready)
///                        copies runs of pinned memory to device memory, behind the landing of batch `after` (none:
///                        -1); `ready` is the event that follows. A run lies in one range that was pinned
///   note(batch, read)    the batch's load is enqueued; it has read its sources once this event has completed
///   is_read(batch)       whether its sources in host memory have been read
///   is_landed(batch)     whether its load has completed
///   take_pinned(bytes), give_back(memory)
template <class T>
concept feeding_device = requires(T& device, page_range pages, std::int64_t bytes, std::size_t batch, event_ref event,
                                  std::span<const copy_run> runs, std::byte* memory) {
  { T::reads_mappings } -> std::convertible_to<bool>;
  { device.prepare(batch) } -> std::same_as<status>;
  device.enter_thread();
  { device.pin(pages) } -> std::same_as<bool>;
  device.unpin(pages);
  { device.copy(batch, runs, memory, bytes, &event) } -> std::same_as<status>;
  { device.note(batch, event) } -> std::same_as<status>;
  { device.is_read(batch) } -> std::same_as<bool>;
  { device.is_landed(batch) } -> std::same_as<bool>;
  { device.take_pinned(bytes) } -> std::same_as<std::byte*>;
  device.give_back(memory);
};

/// Sends checkpoints to open updates. Owns what it has pinned and its ring, if it has one; one thread at a time.
///
/// The bytes that this rank needs go in windows: some threads pin the pages of the mapped files, the calling thread
/// loads from them as soon as they are pinned (kernels read them across PCIe, or the copy engine brings them to a lent
/// device window), and the threads unpin them behind. So pinning, crossing and conversion overlap.
template <feeding_device Device>
class basic_feed {
 public:
  static constexpr int slots = 3;  ///< of the ring and of the device window

  template <class... Args>
  explicit basic_feed(const feed_options& options, Args&&... args)
      : options_(options), device_(std::forward<Args>(args)...) {}
  basic_feed(const basic_feed&) = delete;  // owns pins
  basic_feed& operator=(const basic_feed&) = delete;
  ~basic_feed() {
    release();
    if (own_ring_ != nullptr) device_.give_back(own_ring_);
  }

  /// Loads all needed bytes of the tensors (of one checkpoint, any order) on the update's own lane.
  ///
  ///   model     for `records()`; the update's
  ///   progress  `progress(const feed_progress&)`, on this thread after each load
  ///
  /// Waits until the device has read the files. The update stays the caller's to finish or abort.
  /// Errors:  those of `load`, as they are; `aborted` where another thread ended the update. Before it returns, nothing
  ///          reads the files any more and nothing is pinned, but for `keep_registered`, and for what the device still
  ///          has not read after `most_wait_seconds`: that stays pinned until `release`
  /// Host:    memory for the plan; and `threads` threads while it runs
  template <class Model, class Update, class Progress>
  status send(const Model& model, Update& update, std::span<const checkpoint_tensor> tensors, Progress&& progress,
              feed_report* report = nullptr) {
    const double began = now();
    feed_report told;
    status result = send_all(model.records(), update, tensors, progress, told);
    told.seconds = now() - began;
    told.ring_memory_bytes = own_ring_bytes_;
    if (report != nullptr) *report = told;
    return result;
  }
  template <class Model, class Update>
  status send(const Model& model, Update& update, std::span<const checkpoint_tensor> tensors,
              feed_report* report = nullptr) {
    return send(
        model, update, tensors, [](const feed_progress&) {}, report);
  }

  /// Unpins what is still pinned. Call it before a checkpoint is closed whose pages were kept.
  ///
  /// Requires: nothing reads those pages any more (the updates that did have ended)
  void release() {
    for (const page_range& each : kept_) device_.unpin(each);
    kept_.clear();
  }

  /// Pages that are pinned between two sends.
  std::int64_t kept_bytes() const {
    std::int64_t bytes = 0;
    for (const page_range& each : kept_) bytes += each.bytes();
    return bytes;
  }
  Device& device() { return device_; }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  static constexpr std::int64_t chunk_bytes = std::int64_t{2} << 20;  ///< that a thread copies to the ring at a time

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static status ended() { return refuse(error_code::aborted, {}, "an open update", "one that has ended"); }

  std::int64_t window_bytes() const {
    std::int64_t most = options_.window_bytes;
    const auto fit = [&](std::int64_t memory) {
      if (memory > 0) most = std::min(most, memory / slots - 2 * detail::slot_alignment);
    };
    if constexpr (!Device::reads_mappings) {
      fit(static_cast<std::int64_t>(options_.device_window.size()));
      fit(options_.ring.empty() ? options_.ring_bytes : static_cast<std::int64_t>(options_.ring.size()));
    }
    return std::max(most / detail::page_bytes, std::int64_t{1}) * detail::page_bytes;
  }

  /// One send: what is read from where, and what the lane was given.
  template <class Update, class Progress>
  struct sending {
    Update& update;
    Progress& progress;
    feed_report& told;
    std::span<const checkpoint_tensor> tensors;
    const feed_plan& plan;
    feed_progress done = {};
    std::vector<piece> pieces = {};

    piece piece_for(const feed_piece& each) const {
      return {.name = tensors[each.tensor].name, .tensor = each.data, .part = each.part};
    }
    status load(std::span<const feed_piece> from, event_ref ready) {
      if (status refused = update.load(pieces, ready); !refused.ok()) return refused;
      ++told.loads;
      for (const feed_piece& each : from) {
        done.bytes += each.is_needed ? each.bytes() : 0;
        done.tensors += each.is_last;
      }
      progress(std::as_const(done));
      return {};
    }
  };

  template <class Update, class Progress>
  status send_all(const registry& records, Update& update, std::span<const checkpoint_tensor> tensors,
                  Progress& progress, feed_report& told) {
    const std::int64_t window = window_bytes();
    const feed_plan plan = plan_feed(records, tensors, window, std::max(options_.pinned_bytes, window / 8));
    for (const std::span<std::byte> lent : {options_.device_window, options_.ring})
      if (!lent.empty() && static_cast<std::int64_t>(lent.size()) < slots * plan.slot_bytes)
        return refuse(error_code::bad_argument, "lent memory", std::to_string(slots * plan.slot_bytes) + " bytes",
                      std::to_string(lent.size()));
    told.needed_bytes = plan.needed_bytes;
    told.skipped_bytes = plan.skipped_bytes;
    told.windows = static_cast<std::int64_t>(plan.windows.size());
    sending<Update, Progress> out{update, progress, told, tensors, plan};
    out.done.total_bytes = plan.needed_bytes;
    out.done.total_tensors = static_cast<std::int64_t>(tensors.size());
    if (status refused = send_first(out); !refused.ok()) return refused;
    if constexpr (Device::reads_mappings) {
      for (const feed_batch& batch : plan.batches)
        if (status refused = load_mapped(out, batch, memory_kind::pageable); !refused.ok()) return refused;
      told.host_bytes = plan.needed_bytes - told.first_bytes;
      return {};
    } else {
      return send_batches(out);
    }
  }

  /// What goes first, in loads of some size. The bytes are copied, since their pages are being pinned or unpinned
  /// later.
  template <class Sending>
  status send_first(Sending& out) {
    constexpr std::int64_t most_bytes = std::int64_t{4} << 20;
    const std::span<const feed_piece> all = out.plan.first;
    std::vector<std::byte> copy;
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = begin;
      std::int64_t bytes = 0;
      for (; end < all.size() && bytes <= most_bytes; ++end) bytes += all[end].is_needed ? all[end].bytes() + 16 : 0;
      copy.resize(static_cast<std::size_t>(bytes));
      out.pieces.clear();
      std::byte* to = copy.data();
      for (const feed_piece& each : all.subspan(begin, end - begin)) {
        out.pieces.push_back(out.piece_for(each));
        if (!each.is_needed) continue;
        detail::copy_rows({each.begin(), 0, each.rows, each.row_bytes, each.row_stride_bytes}, to);
        out.pieces.back().tensor.data = to;
        out.pieces.back().tensor.strides = {};
        to += (each.bytes() + 15) / 16 * 16;
        out.told.first_bytes += each.bytes();
      }
      if (status refused = out.load(all.subspan(begin, end - begin), {}); !refused.ok()) return refused;
      begin = end;
    }
    return {};
  }

  /// Loads a batch from where its files are mapped.
  template <class Sending>
  status load_mapped(Sending& out, const feed_batch& batch, memory_kind memory) {
    out.pieces.clear();
    for (const feed_piece& each : out.plan.pieces_of(batch)) {
      out.pieces.push_back(out.piece_for(each));
      out.pieces.back().tensor.memory = memory;
    }
    return out.load(out.plan.pieces_of(batch), {});
  }

  /// Loads a batch from its copy.
  template <class Sending>
  status load_copy(Sending& out, const feed_batch& batch, const std::byte* slot, memory_kind memory, event_ref ready) {
    out.pieces.clear();
    for (const feed_piece& each : out.plan.pieces_of(batch)) {
      out.pieces.push_back(out.piece_for(each));
      out.pieces.back().tensor.data = slot + each.slot_offset;
      out.pieces.back().tensor.strides = {};
      out.pieces.back().tensor.memory = memory;
    }
    return out.load(out.plan.pieces_of(batch), ready);
  }

  template <class Sending>
  status send_batches(Sending& out) {
    const feed_plan& plan = out.plan;
    if (plan.batches.empty()) return {};
    if (status failed = device_.prepare(plan.batches.size()); !failed.ok()) return failed;
    ring_user_.assign(slots, none);
    const bool pins = options_.registers && !options_.already_pinned;
    detail::pinned_windows<Device> windows(device_, plan, kept_, options_.keep_registered);
    if (pins) windows.start(std::max(static_cast<std::size_t>(std::max(options_.threads, 1)), plan.most_windows));
    std::size_t issued = 0;
    status result;
    for (; issued < plan.batches.size() && result.ok(); ++issued) {
      const feed_batch& batch = plan.batches[issued];
      bool pinned = options_.registers && options_.already_pinned;
      const double began = now();
      if (pins && !windows.wait(
                      batch, [&] { return out.update.is_open(); }, &pinned)) {
        result = ended();
        break;
      }
      out.told.waiting_seconds += now() - began;
      result = pinned ? send_pinned(out, issued) : send_through_ring(out, issued);
      // Also behind a load that failed: some of it may be under way.
      const status noted = device_.note(issued, out.update.flush());
      if (result.ok()) result = noted;
      if (pins) windows.release(issued);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options_.most_wait_seconds);
    const auto may_wait = [&] { return std::chrono::steady_clock::now() < end; };
    if (issued > 0)
      detail::poll([&] { return device_.is_read(issued - 1) && device_.is_landed(issued - 1); }, may_wait);
    if (pins) windows.stop(std::chrono::seconds(issued > 0 ? options_.most_wait_seconds : 0));
    out.told.peak_registered_bytes = windows.peak_bytes();
    return result;
  }

  template <class Sending>
  status send_pinned(Sending& out, std::size_t index) {
    const feed_batch& batch = out.plan.batches[index];
    out.told.registered_bytes += batch.bytes;
    if (options_.device_window.empty()) return load_mapped(out, batch, memory_kind::pinned);
    runs_.clear();
    for_each_copy(out.plan.pieces_of(batch),
                  [&](const copy_run& run) { detail::append_within_ranges(out.plan, batch, run, runs_); });
    return send_to_device(out, index);
  }

  template <class Sending>
  status send_through_ring(Sending& out, std::size_t index) {
    const feed_plan& plan = out.plan;
    const feed_batch& batch = plan.batches[index];
    std::byte* ring = ring_memory(plan.slot_bytes);
    const std::size_t slot = ring == nullptr ? 0 : ring_turn_++ % slots;
    if (ring == nullptr && heap_.size() < static_cast<std::size_t>(plan.slot_bytes))
      heap_.resize(static_cast<std::size_t>(plan.slot_bytes));
    std::byte* to = ring == nullptr ? heap_.data() : ring + static_cast<std::int64_t>(slot) * plan.slot_bytes;
    const double began = now();
    const auto is_free = [&] { return ring_user_[slot] == none || device_.is_read(ring_user_[slot]); };
    if (ring != nullptr && !detail::poll(is_free, [&] { return out.update.is_open(); })) return ended();
    runs_.clear();
    for_each_copy(plan.pieces_of(batch),
                  [&](const copy_run& run) { detail::append_in_chunks(run, chunk_bytes, runs_); });
    detail::copy_in_threads(runs_, to, options_.threads);
    out.told.waiting_seconds += now() - began;
    if (ring == nullptr) {
      out.told.host_bytes += batch.bytes;
      return load_copy(out, batch, to, memory_kind::pageable, {});
    }
    ring_user_[slot] = index;
    out.told.ring_bytes += batch.bytes;
    if (options_.device_window.empty()) return load_copy(out, batch, to, memory_kind::pinned, {});
    runs_.clear();
    for_each_copy(plan.pieces_of(batch), [&](const copy_run& run) {
      const std::int64_t bytes = run.rows * run.row_bytes;
      runs_.push_back({to + run.slot_offset, run.slot_offset, 1, bytes, bytes});
    });
    return send_to_device(out, index);
  }

  /// Copies `runs_` to a slot of the device window, and loads from there.
  template <class Sending>
  status send_to_device(Sending& out, std::size_t index) {
    std::byte* slot = options_.device_window.data() + static_cast<std::int64_t>(index % slots) * out.plan.slot_bytes;
    const auto after = static_cast<std::int64_t>(index) - slots;
    event_ref ready;
    if (status failed = device_.copy(index, runs_, slot, after, &ready); !failed.ok()) return failed;
    return load_copy(out, out.plan.batches[index], slot, memory_kind::device, ready);
  }

  /// The ring, taken once; null where there is none.
  std::byte* ring_memory(std::int64_t slot_bytes) {
    const std::int64_t bytes = slots * slot_bytes;
    if (!options_.ring.empty()) return options_.ring.data();
    if (own_ring_ == nullptr && options_.ring_bytes >= bytes) {
      own_ring_ = device_.take_pinned(bytes);
      own_ring_bytes_ = own_ring_ == nullptr ? 0 : bytes;
    }
    return own_ring_;
  }

  feed_options options_;
  Device device_;
  std::vector<page_range> kept_ = {};
  std::byte* own_ring_ = nullptr;
  std::int64_t own_ring_bytes_ = 0;
  std::vector<std::byte> heap_ = {};         ///< a slot in place of the ring
  std::vector<copy_run> runs_ = {};          ///< of the batch at hand
  std::vector<std::size_t> ring_user_ = {};  ///< per slot: the batch that was read from it last
  std::size_t ring_turn_ = 0;
};

/// The host executor's: it reads mappings as they are.
struct no_pinning {
  static constexpr bool reads_mappings = true;
  static status prepare(std::size_t) { return {}; }
  static void enter_thread() {}
  static bool pin(const page_range&) { return false; }
  static void unpin(const page_range&) {}
  static status copy(std::size_t, std::span<const copy_run>, std::byte*, std::int64_t, event_ref*) { return {}; }
  static status note(std::size_t, event_ref) { return {}; }
  static bool is_read(std::size_t) { return true; }
  static bool is_landed(std::size_t) { return true; }
  static std::byte* take_pinned(std::int64_t) { return nullptr; }
  static void give_back(std::byte*) {}
};

using host_feed = basic_feed<no_pinning>;

}  // namespace wreload
