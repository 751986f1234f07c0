#pragma once
/// `feed`: the way of a checkpoint's files to the device.

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../update/options.hpp"
#include "copy_runs.hpp"
#include "feed_options.hpp"
#include "feed_plan.hpp"
#include "pinned_ranges.hpp"
#include "plan_feed.hpp"
#include "ready_batches.hpp"

namespace wreload {

/// What a feed needs of a device. On another thread than that of `send` only `enter_thread`, `pin`, `unpin` and
/// `is_read` are called.
///
///   reads_mappings       the executor reads any host memory at once: nothing else is called
///   prepare(batches)     a send of so many batches begins; they are numbered as they are issued
///   enter_thread()       the calling thread is going to pin
///   pin(pages)           pins pages of a read-only file mapping so that the device reads them at their address; false
///                        where that is not possible
///   unpin(pages)         Requires: nothing reads them any more
///   copy(batch, runs, to, after, ready)
///                        copies runs of pinned memory to device memory, behind the landing of batch `after` (-1: of
///                        none); `ready` is the event that follows. A run lies in one range that was pinned
///   note(batch, read)    the batch's load is enqueued; it has read its sources once this event has completed
///   is_read(batch)       whether its sources in host memory have been read
///   is_landed(batch)     whether its load has completed
///   take_pinned(bytes), give_back(memory)
///                        pinned memory for the ring; null: none to be had
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
/// The bytes that this rank needs go in batches, two ways at once. One thread pins the pages of the mapped files, from
/// the first batch on; others copy batches to a pinned ring, from the last one on. The calling thread loads what is
/// ready, in whatever order (kernels read it across PCIe, or the copy engine brings it to a lent device window). So
/// pinning, copying, crossing and conversion overlap. `ready_batches` says more.
///
/// Memory: the ring (`feed_options::ring_bytes`) is taken when the feed is made, and given back at its end.
template <feeding_device Device>
class basic_feed {
 public:
  static constexpr int least_slots = 3;  ///< of the ring and of the device window
  static constexpr int most_slots = 16;
  static constexpr std::size_t most_in_flight = 4;  ///< batches that are issued and not read; more would keep slots of
                                                    ///< the ring waiting behind them

  template <class... Args>
  explicit basic_feed(const feed_options& options, Args&&... args)
      : options_(options), device_(std::forward<Args>(args)...) {
    if constexpr (!Device::reads_mappings)
      if (options.ring.empty() && options.ring_bytes > 0 && !options.already_pinned)
        own_ring_ = device_.take_pinned(options.ring_bytes);
  }
  basic_feed(const basic_feed&) = delete;  // owns pins
  basic_feed& operator=(const basic_feed&) = delete;
  /// Memory that the device has still not read stays taken.
  ~basic_feed() {
    release();
    if (own_ring_ != nullptr && !is_late_) device_.give_back(own_ring_);
  }

  /// Loads all needed bytes of the tensors (of one checkpoint, any order) on the update's own lane.
  ///
  ///   model     for `records()`; the update's
  ///   progress  `progress(const feed_progress&)`, on this thread after each load
  ///
  /// Waits until the device has read the files. The update stays the caller's to finish or abort.
  /// Errors:  those of `load`, as they are; `aborted` where another thread ended the update. Before it returns, nothing
  ///          reads the files any more, and nothing is pinned but for `keep_registered` and `unregister_later`. What the
  ///          device still has not read after `most_wait_seconds` stays pinned until `release`; a send that comes before
  ///          it has been read is refused (`wrong_state`) after as long a wait: its memory is not free
  /// Host:    memory for the plan; and `threads` + 1 threads while it runs
  template <class Model, class Update, class Progress>
  status send(const Model& model, Update& update, std::span<const checkpoint_tensor> tensors, Progress&& progress,
              feed_report* report = nullptr) {
    const double began = now();
    feed_report told;
    status result = send_all(model.records(), update, tensors, progress, told);
    told.seconds = now() - began;
    told.ring_memory_bytes = own_ring_ == nullptr ? 0 : options_.ring_bytes;
    if (report != nullptr) *report = told;
    return result;
  }
  template <class Model, class Update>
  status send(const Model& model, Update& update, std::span<const checkpoint_tensor> tensors,
              feed_report* report = nullptr) {
    return send(
        model, update, tensors, [](const feed_progress&) {}, report);
  }

  /// Unpins what is still pinned, once the device has read it (waits for that, at most `most_wait_seconds`, then leaves
  /// it pinned). Call it before a checkpoint is closed whose pages were kept.
  ///
  /// Requires: the updates that read those pages have ended
  void release() {
    if (!wait_for_late()) return;
    for (const page_range& each : kept_) device_.unpin(each);
    kept_.clear();
  }

  /// Pages that are pinned between two sends.
  std::int64_t kept_bytes() const {
    std::int64_t bytes = 0;
    for (const page_range& each : kept_) bytes += each.bytes();
    return bytes;
  }
  /// What pins and copies.
  Device& device() { return device_; }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static status ended() { return refuse(error_code::aborted, {}, "an open update", "one that has ended"); }

  std::int64_t window_bytes() const {
    std::int64_t most = options_.window_bytes;
    const auto fit = [&](std::int64_t memory) {
      if (memory > 0) most = std::min(most, memory / least_slots - 2 * detail::slot_alignment);
    };
    if constexpr (!Device::reads_mappings) {
      fit(static_cast<std::int64_t>(options_.device_window.size()));
      fit(options_.ring.empty() ? options_.ring_bytes : static_cast<std::int64_t>(options_.ring.size()));
    }
    return std::max(most / detail::page_bytes, std::int64_t{1}) * detail::page_bytes;
  }

  /// Whether all batches up to this one of the last send have been read, and what was copied of them has landed.
  bool wait_for(std::size_t last) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options_.most_wait_seconds);
    const auto may_wait = [&] { return std::chrono::steady_clock::now() < end; };
    return detail::poll([&] { return device_.is_read(last) && device_.is_landed(last); }, may_wait);
  }
  /// Whether nothing of earlier sends is still to be read.
  bool wait_for_late() {
    if (is_late_) is_late_ = !wait_for(last_turn_);
    return !is_late_;
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
    const feed_plan plan = plan_feed(records, tensors, window_bytes());
    for (const std::span<std::byte> lent : {options_.device_window, options_.ring})
      if (!lent.empty() && static_cast<std::int64_t>(lent.size()) < least_slots * plan.slot_bytes)
        return refuse(error_code::bad_argument, "lent memory", std::to_string(least_slots * plan.slot_bytes) + " bytes",
                      std::to_string(lent.size()));
    if (!wait_for_late())
      return refuse(error_code::wrong_state, {}, "a device that has read what was sent before", "one that has not");
    told.needed_bytes = plan.needed_bytes;
    told.skipped_bytes = plan.skipped_bytes;
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

  static std::int64_t slots_of(std::int64_t memory_bytes, const feed_plan& plan) {
    return std::min<std::int64_t>(memory_bytes / plan.slot_bytes, most_slots);
  }

  typename detail::ready_batches<Device>::settings settings_for(const feed_plan& plan) const {
    // A few cores are left to the thread that loads, the one that pins, and the engine.
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const std::int64_t ring_bytes = options_.ring.empty() ? options_.ring_bytes : std::ssize(options_.ring);
    std::byte* const ring = options_.ring.empty() ? own_ring_ : options_.ring.data();
    return {.are_pinned = options_.already_pinned,
            .pins = options_.registers || options_.keep_registered || options_.already_pinned,
            .pins_all = options_.keep_registered,
            .unpins = !options_.keep_registered && !options_.unregister_later,
            .most_pinned_bytes =
                options_.keep_registered ? std::numeric_limits<std::int64_t>::max() : options_.most_registered_bytes,
            .ring = ring,
            .slots = ring == nullptr ? 0 : static_cast<std::size_t>(slots_of(ring_bytes, plan)),
            .threads = options_.threads > 0 ? options_.threads : std::clamp(cores - 3, 1, 12),
            .chunk_bytes = std::clamp(plan.slot_bytes / 16, detail::page_bytes, std::int64_t{2} << 20)};
  }

  template <class Sending>
  status send_batches(Sending& out) {
    const feed_plan& plan = out.plan;
    if (plan.batches.empty()) return {};
    if (status failed = device_.prepare(plan.batches.size()); !failed.ok()) return failed;
    detail::pinned_ranges<Device> ranges(device_, plan, kept_);
    detail::ready_batches<Device> ready(device_, plan, ranges, settings_for(plan));
    const auto is_open = [&] { return out.update.is_open(); };
    std::size_t turn = 0;
    status result;
    for (; turn < plan.batches.size() && result.ok(); ++turn) {
      const auto has_room = [&] { return turn < most_in_flight || device_.is_read(turn - most_in_flight); };
      const double full = now();
      const bool may_issue = detail::poll(has_room, is_open);
      const double began = now();
      out.told.full_seconds += began - full;
      const detail::ready_batch next = may_issue ? ready.next(is_open) : detail::ready_batch{};
      out.told.waiting_seconds += now() - began;
      if (next.how == detail::ready_batch::way::none) {
        result = ended();
        break;
      }
      result = send_batch(out, next, turn);
      // Also behind a load that failed: some of it may be under way.
      const status noted = device_.note(turn, out.update.flush());
      if (result.ok()) result = noted;
      ready.issued(next.batch, turn);
    }
    last_turn_ = turn - 1;
    is_late_ = turn > 0 && !wait_for(last_turn_);
    ready.stop(std::chrono::seconds(turn > 0 ? options_.most_wait_seconds : 0));
    out.told.peak_registered_bytes = ranges.peak_bytes();
    out.told.registering_seconds = ranges.pinning_seconds();
    out.told.unregistering_seconds = ranges.unpinning_seconds();
    return result;
  }

  template <class Sending>
  status send_batch(Sending& out, const detail::ready_batch& next, std::size_t turn) {
    using way = detail::ready_batch::way;
    const feed_plan& plan = out.plan;
    const feed_batch& batch = plan.batches[next.batch];
    const bool copies = !options_.device_window.empty();
    runs_.clear();
    if (next.how == way::pinned) {
      out.told.registered_bytes += batch.bytes;
      if (!copies) return load_mapped(out, batch, memory_kind::pinned);
      for_each_copy(plan.pieces_of(batch),
                    [&](const copy_run& run) { detail::append_within_ranges(plan, batch, run, runs_); });
      return send_to_device(out, batch, turn);
    }
    if (next.how == way::ring) {
      out.told.ring_bytes += batch.bytes;
      if (!copies) return load_copy(out, batch, next.slot, memory_kind::pinned, {});
      for_each_copy(plan.pieces_of(batch), [&](const copy_run& run) {
        const std::int64_t bytes = run.rows * run.row_bytes;
        runs_.push_back({next.slot + run.slot_offset, run.slot_offset, 1, bytes, bytes});
      });
      return send_to_device(out, batch, turn);
    }
    // Copied, since some of the pages may still be pinned.
    out.told.host_bytes += batch.bytes;
    heap_.resize(static_cast<std::size_t>(plan.slot_bytes));
    for_each_copy(plan.pieces_of(batch),
                  [&](const copy_run& run) { detail::copy_rows(run, heap_.data() + run.slot_offset); });
    return load_copy(out, batch, heap_.data(), memory_kind::pageable, {});
  }

  /// Copies `runs_` to a slot of the device window, and loads from there.
  template <class Sending>
  status send_to_device(Sending& out, const feed_batch& batch, std::size_t turn) {
    const std::int64_t slots = slots_of(std::ssize(options_.device_window), out.plan);
    const auto number = static_cast<std::int64_t>(turn);
    std::byte* slot = options_.device_window.data() + number % slots * out.plan.slot_bytes;
    event_ref ready;
    if (status failed = device_.copy(turn, runs_, slot, std::max<std::int64_t>(number - slots, -1), &ready);
        !failed.ok())
      return failed;
    return load_copy(out, batch, slot, memory_kind::device, ready);
  }

  feed_options options_;
  std::size_t last_turn_ = 0;  ///< of the last send
  bool is_late_ = false;       ///< what was sent up to there may still be read
  Device device_;
  std::vector<page_range> kept_ = {};
  std::byte* own_ring_ = nullptr;
  std::vector<std::byte> heap_ = {};  ///< a slot in place of the ring
  std::vector<copy_run> runs_ = {};   ///< of the batch at hand
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
