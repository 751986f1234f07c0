#pragma once
/// `host_digest`: digests of rectangles in plain memory, tile by tile.

#include <cstddef>
#include <cstdint>
#include <span>

#include "../core/job.hpp"
#include "../core/storage_map.hpp"
#include "../numerics/digest.hpp"
#include "digest_grid.hpp"

namespace wreload::detail {

/// Digests of what lies as the maps of an executor say.
template <class Use>
class host_digest {
 public:
  explicit host_digest(std::span<const storage_map> maps) : maps_(maps) {}

  /// Calls `visit(tile, sum)` for each tile that the job touches, in order: what its elements add to the tile's digest.
  template <class Visit>
  void for_each_sum(const digest_job& job, Visit&& visit) const {
    for_each_tile(job, [&](const digest_job& part, std::int64_t tile) { visit(tile, sum_of(part)); });
  }

 private:
  /// Of a part of one tile: by rows where they are contiguous, else by runs or single elements.
  std::uint64_t sum_of(const digest_job& part) const {
    const std::int64_t row = part.row % digest_tile_rows, col = part.col % digest_tile_cols;
    const std::int64_t element = part.element_bytes;
    if (part.map == unmapped && part.col_stride_bytes == 0)
      return digest_rows(part.data, part.rows, part.cols * element, part.row_stride_bytes, row, col * element);
    std::uint64_t sum = 0;
    const storage_map identity = {};
    const storage_map& map = part.map == unmapped ? identity : maps_[static_cast<std::size_t>(part.map)];
    for (std::int64_t r = 0; r < part.rows; ++r)
      for (std::int64_t c = 0; c < part.cols;) {
        const std::int64_t first = (part.map_col + c) * element, last = (part.map_col + part.cols) * element;
        const bool is_strided = part.map == unmapped;
        const std::int64_t run = is_strided ? element : contiguous_bytes(map, first, last);
        const std::int64_t offset = is_strided ? r * part.row_stride_bytes + c * part.col_stride_bytes
                                               : map_offset(map, part.map_row + r, first, part.row_stride_bytes);
        sum += digest_rows(part.data + offset, 1, run, 0, row + r, (col + c) * element);
        c += run / element;
      }
    return sum;
  }

  std::span<const storage_map> maps_;
};

}  // namespace wreload::detail
