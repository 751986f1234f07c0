#pragma once
/// `feeding_device`: what pins pages and copies for a feed.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "../core/status.hpp"
#include "../core/tensor_ref.hpp"
#include "copy_runs.hpp"
#include "feed_plan.hpp"

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
static_assert(feeding_device<no_pinning>);

}  // namespace wreload
