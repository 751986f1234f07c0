#pragma once
/// What callers tell a feed, and what it tells them: plain records.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace wreload {

/// How a feed works; lent memory must outlive it.
///
///   window_bytes     most bytes that are loaded as one; a larger tensor is cut, and is then converted after it has
///                    landed. With a device window or a ring at most a third of that
///   threads          that fill the ring (one more pins); 0: three less than there are cores, at most 12
///   registers        pages of the files are pinned where they lie, if that can be (never those of a private mapping;
///                    see also `file_mapping::writable`), while other bytes go through the ring. false: all bytes do.
///                    Pinning holds up the thread that feeds: pages that are read once go faster through the ring
///                    (on an H200 0.77 of the copy engine's rate against 0.35 to 0.46; see bench/NOTES.md)
///   most_registered_bytes
///                    that are pinned at a time, but at least what one load reads. Below it, pages are unpinned only
///                    when no more are to be pinned, and the driver has time for that
///   keep_registered  pages are pinned, as with `registers`, and stay so after `send`, until `release` or the end of
///                    the feed. The ring then has only what cannot be pinned, and there is no limit
///   unregister_later pages that are still pinned when all are loaded stay so until `release`, or the next send that has
///                    other pages in their place, or the end of the feed: the update need not wait for that
///   already_pinned   the caller has pinned the files' pages: nothing is pinned here
///   ring             pinned memory that the caller lends; 3 to 16 slots of `window_bytes` are used
///   ring_bytes       without it: pinned memory that the feed takes for that when it is made. Where there is none
///                    either, pages that cannot be pinned pass through the executor's own pinned window
///   device_window    device memory that the caller lends, 3 to 16 slots of `window_bytes`: the copy engine brings
///                    bytes there, and they are loaded from there. Empty: kernels read the pinned memory themselves
///   most_wait_seconds
///                    how long the end of a send waits for the device
struct feed_options {
  std::int64_t window_bytes = std::int64_t{32} << 20;
  int threads = 0;
  bool registers = false;
  std::int64_t most_registered_bytes = std::int64_t{16} << 30;
  bool keep_registered = false;
  bool unregister_later = false;
  bool already_pinned = false;
  std::span<std::byte> ring = {};
  std::int64_t ring_bytes = 8 * ((std::int64_t{32} << 20) + 4096);
  std::span<std::byte> device_window = {};
  int most_wait_seconds = 30;
};

/// How far a feed is: needed bytes, and tensors (needed or not), that were handed to the update's lane.
struct feed_progress {
  std::int64_t bytes = 0;
  std::int64_t total_bytes = 0;
  std::int64_t tensors = 0;
  std::int64_t total_tensors = 0;
};

/// What `send` did. Bytes of the three ways and `first_bytes` add up to `needed_bytes`, if all went well.
struct feed_report {
  std::int64_t needed_bytes = 0;      ///< of this rank
  std::int64_t skipped_bytes = 0;     ///< of the given tensors, not read
  std::int64_t first_bytes = 0;       ///< small scales that went ahead, through the executor's window
  std::int64_t registered_bytes = 0;  ///< from pages that were pinned where they lie
  std::int64_t ring_bytes = 0;        ///< through the pinned ring
  std::int64_t host_bytes = 0;        ///< read by the host from the mapping, or (no ring) through the executor's window
  std::int64_t loads = 0;
  std::int64_t peak_registered_bytes = 0;
  std::int64_t ring_memory_bytes = 0;  ///< pinned memory of the feed's own
  double seconds = 0;
  double waiting_seconds = 0;        ///< of it, with nothing pinned and nothing in the ring
  double full_seconds = 0;           ///< of it, with so much in flight that the device is the limit
  double registering_seconds = 0;    ///< of the thread that does it
  double unregistering_seconds = 0;  ///< of that thread

  /// "registered" (pages pinned where they lie, here or by the caller), "ring", both, or "host": how the host's bytes were
  /// read. Whether the copy engine or the kernels brought them over is the caller's choice (`device_window`).
  std::string_view way() const {
    if (registered_bytes > 0) return ring_bytes + host_bytes > 0 ? "registered and ring" : "registered";
    return ring_bytes > 0 ? "ring" : "host";
  }
};

}  // namespace wreload
