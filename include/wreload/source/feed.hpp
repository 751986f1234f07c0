#pragma once
/// `feed`: the way of a checkpoint's files to the device.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint.hpp"
#include "feed_batches.hpp"
#include "feed_loads.hpp"
#include "feed_options.hpp"
#include "feed_plan.hpp"
#include "feeding_device.hpp"
#include "plan_feed.hpp"

namespace wreload {

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
    if (own_ring_ != nullptr && !unread_.any()) device_.give_back(own_ring_);
  }

  /// Loads all needed bytes of the tensors (of one checkpoint, any order) on the update's own lane.
  ///
  ///   model     for `records()`; the update's
  ///   progress  `progress(const feed_progress&)`, on this thread after each load
  ///
  /// Waits until the device has read the files. The update stays the caller's to finish or abort.
  /// Errors:  those of `load`, as they are (an unknown name, another dtype or shape before anything is written);
  ///          `aborted` where another thread ended the update. Before it returns, nothing reads the files any more, and
  ///          nothing is pinned but for `keep_registered` and `unregister_later`. What the
  ///          device still has not read after `most_wait_seconds` stays pinned until `release`; a send that comes before
  ///          it has been read is refused (`wrong_state`) after as long a wait: its memory is not free
  /// Host:    memory for the plan; and `threads` + 1 threads while it runs
  template <class Model, class Update, class Progress>
  status send(const Model& model, Update& update, std::span<const checkpoint_tensor> tensors, Progress&& progress,
              feed_report* report = nullptr) {
    const double began = detail::feed_seconds();
    feed_report told;
    status result = send_all(model.records(), update, tensors, progress, told);
    told.seconds = detail::feed_seconds() - began;
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
  std::span<std::byte> ring() const {
    if (!options_.ring.empty() || own_ring_ == nullptr) return options_.ring;
    return {own_ring_, static_cast<std::size_t>(options_.ring_bytes)};
  }

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

  /// Whether nothing of earlier sends is still to be read.
  bool wait_for_late() { return unread_.wait(std::chrono::seconds(options_.most_wait_seconds)); }

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
    detail::feed_loads<Update, Progress> out(update, progress, tensors, plan, told);
    if (status refused = out.load_first(); !refused.ok()) return refused;
    if constexpr (Device::reads_mappings) {
      for (const feed_batch& batch : plan.batches)
        if (status refused = out.load_mapped(batch, memory_kind::pageable); !refused.ok()) return refused;
      told.host_bytes = plan.needed_bytes - told.first_bytes;
      return {};
    } else {
      return detail::feed_batches(device_, options_, ring(), kept_, out).send(unread_);
    }
  }

  feed_options options_;
  Device device_;
  detail::unread_batches<Device> unread_{device_};
  std::vector<page_range> kept_ = {};
  std::byte* own_ring_ = nullptr;
};

/// The host executor's: it reads mappings as they are.
using host_feed = basic_feed<no_pinning>;

}  // namespace wreload
