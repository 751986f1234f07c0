#pragma once
/// `feed_plan`: which bytes of a checkpoint's files this rank needs, cut into loads.
/// source/plan_feed.hpp makes it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../core/box.hpp"
#include "../core/tensor_ref.hpp"

namespace wreload {

/// A box of a checkpoint tensor that is loaded at once: `rows` runs of bytes in the mapping of its file.
struct feed_piece {
  std::size_t tensor = 0;  ///< position in the list that was planned
  box part = {};
  tensor_ref data = {};  ///< in the mapping
  std::int64_t rows = 1;
  std::int64_t row_bytes = 0;
  std::int64_t row_stride_bytes = 0;
  std::int64_t slot_offset = 0;  ///< of its copy (rows dense) in the copy of its batch
  bool is_last = true;           ///< of its tensor
  bool is_needed = true;         ///< false: named to the update, no byte of it is read

  const std::byte* begin() const { return static_cast<const std::byte*>(data.data); }
  const std::byte* end() const { return begin() + (rows - 1) * row_stride_bytes + row_bytes; }
  std::int64_t bytes() const { return rows * row_bytes; }
};

/// Whole pages [begin, end) of one file's mapping.
struct page_range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  std::int64_t bytes() const { return end - begin; }
  friend constexpr bool operator==(const page_range&, const page_range&) = default;
};

/// Pieces that are loaded together. They lie in page ranges [first_range, end_range), of which the first may belong to
/// earlier batches: two batches may share a page.
struct feed_batch {
  std::size_t first_piece = 0;
  std::size_t piece_count = 0;
  std::size_t first_range = 0;
  std::size_t own_range = 0;  ///< the first that no earlier batch reads
  std::size_t end_range = 0;
  std::int64_t bytes = 0;
  bool is_shared = true;  ///< all mappings are: see `mapped_file`
};

/// The way of a checkpoint to one rank. `first` goes before everything else: names of which no byte is needed, then
/// small scales, so that weights meet them and are converted on their way. Then the batches, in file order. Every needed
/// row comes once, over the columns that any landing of its tensor needs.
struct feed_plan {
  std::vector<feed_piece> first = {};
  std::vector<feed_piece> pieces = {};
  std::vector<feed_batch> batches = {};
  std::vector<page_range> ranges = {};  ///< disjoint; in the order of the batches
  std::int64_t slot_bytes = 0;          ///< that the copy of a batch may take
  std::int64_t needed_bytes = 0;
  std::int64_t skipped_bytes = 0;  ///< of the checkpoint's tensors

  std::span<const feed_piece> pieces_of(const feed_batch& batch) const {
    return std::span(pieces).subspan(batch.first_piece, batch.piece_count);
  }
  std::span<const page_range> ranges_of(const feed_batch& batch) const {
    return std::span(ranges).subspan(batch.first_range, batch.end_range - batch.first_range);
  }
};

namespace detail {

inline constexpr std::int64_t page_bytes = 4096;
inline const std::byte* page_floor(const std::byte* at) {
  return at - reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(page_bytes);
}
inline const std::byte* page_ceil(const std::byte* at) { return page_floor(at + (page_bytes - 1)); }

inline constexpr std::int64_t slot_alignment = 256;
/// A scale up to this size goes first.
inline constexpr std::int64_t small_bytes = std::int64_t{1} << 20;
/// Bytes between two pieces that are registered, and (less of them) copied, rather than split over.
inline constexpr std::int64_t registered_gap_bytes = std::int64_t{64} << 10;
inline constexpr std::int64_t copied_gap_bytes = std::int64_t{16} << 10;

}  // namespace detail
}  // namespace wreload
