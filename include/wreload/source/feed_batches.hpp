#pragma once
/// `feed_batches`: hands the batches of a plan to a device, in the order in which they become ready.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include "copy_runs.hpp"
#include "feed_loads.hpp"
#include "feed_options.hpp"
#include "feed_plan.hpp"
#include "feeding_device.hpp"
#include "pinned_ranges.hpp"
#include "poll.hpp"
#include "ready_batches.hpp"

namespace wreload::detail {

inline double feed_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Batches that were issued and that the device may still read: the memory behind them is not free.
template <feeding_device Device>
class unread_batches {
 public:
  explicit unread_batches(Device& device) : device_(device) {}

  /// All batches up to this one of the last send were issued.
  void issued(std::size_t last) {
    last_ = last;
    any_ = true;
  }
  bool any() const { return any_; }
  /// Waits until all have been read, and what was copied of them has landed. Whether that is so.
  bool wait(std::chrono::seconds most) {
    const auto end = std::chrono::steady_clock::now() + most;
    const auto may_wait = [&] { return std::chrono::steady_clock::now() < end; };
    if (any_) any_ = !poll([&] { return device_.is_read(last_) && device_.is_landed(last_); }, may_wait);
    return !any_;
  }

 private:
  Device& device_;
  std::size_t last_ = 0;
  bool any_ = false;
};

/// One send: from pages that are pinned where they lie, from the ring, or from the heap, each batch as it is ready.
template <feeding_device Device, class Loads>
class feed_batches {
 public:
  static constexpr int most_slots = 16;             ///< of the ring and of the device window
  static constexpr std::size_t most_in_flight = 4;  ///< batches that are issued and not read; more would keep slots of
                                                    ///< the ring waiting behind them

  /// `ring`: pinned memory, may be empty. `kept`: pages that are pinned already; receives those that stay so.
  feed_batches(Device& device, const feed_options& options, std::span<std::byte> ring, std::vector<page_range>& kept,
               Loads& out)
      : device_(device), options_(options), ring_(ring), kept_(kept), out_(out), plan_(out.plan()) {}

  /// Issues all batches, and waits until they have been read; `unread` says whether they have.
  status send(unread_batches<Device>& unread) {
    if (plan_.batches.empty()) return {};
    if (status failed = device_.prepare(plan_.batches.size()); !failed.ok()) return failed;
    pinned_ranges<Device> ranges(device_, plan_, kept_);
    ready_batches<Device> ready(device_, plan_, ranges, settings());
    const auto is_open = [&] { return out_.is_open(); };
    feed_report& told = out_.told();
    std::size_t turn = 0;
    status result;
    for (; turn < plan_.batches.size() && result.ok(); ++turn) {
      const auto has_room = [&] { return turn < most_in_flight || device_.is_read(turn - most_in_flight); };
      const double full = feed_seconds();
      const bool may_issue = poll(has_room, is_open);
      const double began = feed_seconds();
      told.full_seconds += began - full;
      const ready_batch next = may_issue ? ready.next(is_open) : ready_batch{};
      told.waiting_seconds += feed_seconds() - began;
      if (next.how == ready_batch::way::none) {
        result = refuse(error_code::aborted, {}, "an open update", "one that has ended");
        break;
      }
      result = send_one(next, turn);
      // Also behind a load that failed: some of it may be under way.
      const status noted = device_.note(turn, out_.flush());
      if (result.ok()) result = noted;
      ready.issued(next.batch, turn);
    }
    const std::chrono::seconds most(turn > 0 ? options_.most_wait_seconds : 0);
    if (turn > 0) unread.issued(turn - 1);
    (void)unread.wait(most);
    ready.stop(most);
    told.peak_registered_bytes = ranges.peak_bytes();
    told.registering_seconds = ranges.pinning_seconds();
    told.unregistering_seconds = ranges.unpinning_seconds();
    return result;
  }

 private:
  std::int64_t slots_of(std::span<const std::byte> memory) const {
    return std::min<std::int64_t>(std::ssize(memory) / plan_.slot_bytes, most_slots);
  }

  typename ready_batches<Device>::settings settings() const {
    // A few cores are left to the thread that loads, the one that pins, and the engine.
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    return {.are_pinned = options_.already_pinned,
            .pins = options_.registers || options_.keep_registered || options_.already_pinned,
            .pins_all = options_.keep_registered,
            .unpins = !options_.keep_registered && !options_.unregister_later,
            .most_pinned_bytes =
                options_.keep_registered ? std::numeric_limits<std::int64_t>::max() : options_.most_registered_bytes,
            .ring = ring_.data(),
            .slots = static_cast<std::size_t>(slots_of(ring_)),
            .threads = options_.threads > 0 ? options_.threads : std::clamp(cores - 3, 1, 12),
            .chunk_bytes = std::clamp(plan_.slot_bytes / 16, page_bytes, std::int64_t{2} << 20)};
  }

  status send_one(const ready_batch& next, std::size_t turn) {
    using way = ready_batch::way;
    const feed_batch& batch = plan_.batches[next.batch];
    const bool copies = !options_.device_window.empty();
    runs_.clear();
    if (next.how == way::pinned) {
      out_.told().registered_bytes += batch.bytes;
      if (!copies) return out_.load_mapped(batch, memory_kind::pinned);
      for_each_copy(plan_.pieces_of(batch),
                    [&](const copy_run& run) { append_within_ranges(plan_, batch, run, runs_); });
      return send_to_device(batch, turn);
    }
    if (next.how == way::ring) {
      out_.told().ring_bytes += batch.bytes;
      if (!copies) return out_.load_copy(batch, next.slot, memory_kind::pinned, {});
      for_each_copy(plan_.pieces_of(batch), [&](const copy_run& run) {
        const std::int64_t bytes = run.rows * run.row_bytes;
        runs_.push_back({next.slot + run.slot_offset, run.slot_offset, 1, bytes, bytes});
      });
      return send_to_device(batch, turn);
    }
    // Copied, since some of the pages may still be pinned.
    out_.told().host_bytes += batch.bytes;
    heap_.resize(static_cast<std::size_t>(plan_.slot_bytes));
    for_each_copy(plan_.pieces_of(batch),
                  [&](const copy_run& run) { copy_rows(run, heap_.data() + run.slot_offset); });
    return out_.load_copy(batch, heap_.data(), memory_kind::pageable, {});
  }

  /// Copies `runs_` to a slot of the device window, and loads from there.
  status send_to_device(const feed_batch& batch, std::size_t turn) {
    const std::int64_t slots = slots_of(options_.device_window);
    const auto number = static_cast<std::int64_t>(turn);
    std::byte* slot = options_.device_window.data() + number % slots * plan_.slot_bytes;
    event_ref ready;
    if (status failed = device_.copy(turn, runs_, slot, std::max<std::int64_t>(number - slots, -1), &ready);
        !failed.ok())
      return failed;
    return out_.load_copy(batch, slot, memory_kind::device, ready);
  }

  Device& device_;
  const feed_options& options_;
  std::span<std::byte> ring_;
  std::vector<page_range>& kept_;
  Loads& out_;
  const feed_plan& plan_;
  std::vector<std::byte> heap_ = {};  ///< a slot in place of the ring
  std::vector<copy_run> runs_ = {};   ///< of the batch at hand
};

}  // namespace wreload::detail
