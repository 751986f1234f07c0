#pragma once
/// The tiles that a rectangle touches, and what of a landing is digested: shared by the executors.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "../core/job.hpp"
#include "../numerics/digest.hpp"

namespace wreload {

/// Tiles of a grid that a rectangle touches.
struct digest_grid {
  std::int64_t down = 0;
  std::int64_t across = 0;
  constexpr std::int64_t tiles() const { return down * across; }
};

constexpr digest_grid digest_grid_of(std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) {
  if (rows <= 0 || cols <= 0) return {};
  return {(row + rows - 1) / digest_tile_rows - row / digest_tile_rows + 1,
          (col + cols - 1) / digest_tile_cols - col / digest_tile_cols + 1};
}
constexpr digest_grid digest_grid_of(const digest_job& job) {
  return digest_grid_of(job.row, job.col, job.rows, job.cols);
}

static_assert(digest_grid_of(255, 4095, 2, 2).tiles() == 4 && digest_grid_of(256, 0, 256, 4096).tiles() == 1);

namespace detail {

/// Rows [row, row + rows) x columns [col, col + cols) of a job.
constexpr digest_job cut(digest_job job, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  const std::int64_t col_stride = job.col_stride_bytes == 0 ? job.element_bytes : job.col_stride_bytes;
  if (job.map == unmapped) {
    job.data += row * job.row_stride_bytes + col * col_stride;
  } else {
    job.map_row += row;
    job.map_col += col;
  }
  job.row += row;
  job.col += col;
  job.rows = rows;
  job.cols = cols;
  return job;
}

/// Calls `visit(part, tile)` for the part of a job in each tile, in order.
template <class Visit>
constexpr void for_each_tile(const digest_job& job, Visit&& visit) {
  const digest_grid grid = digest_grid_of(job);
  for (std::int64_t down = 0, row = 0; down < grid.down; ++down) {
    const std::int64_t row_end = std::min(job.rows, (job.row / digest_tile_rows + down + 1) * digest_tile_rows - job.row);
    for (std::int64_t across = 0, col = 0; across < grid.across; ++across) {
      const std::int64_t col_end =
          std::min(job.cols, (job.col / digest_tile_cols + across + 1) * digest_tile_cols - job.col);
      visit(cut(job, row, row_end - row, col, col_end - col), down * grid.across + across);
      col = col_end;
    }
    row = row_end;
  }
}

/// Tiles of a job that follow one another, as one job.
struct tile_run {
  digest_job part = {};
  std::int64_t tiles = 0;
  std::int64_t row = 0, col = 0;  ///< where the rest begins, unless `is_last`
  bool is_last = true;
};

/// At most `most` (> 0) tiles of a job from its element (row, col) on, which begins a tile: rows of whole tiles, or a piece
/// of one such row.
constexpr tile_run next_tiles(const digest_job& job, std::int64_t row, std::int64_t col, std::int64_t most) {
  if (job.rows <= 0 || job.cols <= 0) return {};
  const std::int64_t below = job.row + row, right = job.col + col;
  const std::int64_t across = digest_grid_of(below, right, 1, job.cols - col).across;
  const bool whole_rows = col == 0 && across <= most;
  const std::int64_t down = whole_rows ? most / across : 1, wide = whole_rows ? across : std::min(across, most);
  const std::int64_t row_end = std::min(job.rows, (below / digest_tile_rows + down) * digest_tile_rows - job.row);
  const std::int64_t col_end = std::min(job.cols, (right / digest_tile_cols + wide) * digest_tile_cols - job.col);
  tile_run run{.part = cut(job, row, row_end - row, col, col_end - col)};
  run.tiles = digest_grid_of(run.part).tiles();
  run.is_last = row_end == job.rows && col_end == job.cols;
  run.row = col_end == job.cols ? row_end : row;
  run.col = col_end == job.cols ? 0 : col_end;
  return run;
}

/// The digest of a landing's source.
constexpr digest_job digest_of_source(const land_job& job, const land_digest& where) {
  digest_job source{.data = job.source,
                    .rows = job.rows,
                    .cols = job.cols,
                    .row_stride_bytes = job.source_row_stride_bytes,
                    .col_stride_bytes = job.source_col_stride_bytes,
                    .row = where.row,
                    .col = where.col,
                    .element_bytes = static_cast<std::int32_t>(bytes_of(job.from))};
  if (where.is_transposed) {
    std::swap(source.rows, source.cols);
    std::swap(source.row_stride_bytes, source.col_stride_bytes);
  }
  if (source.col_stride_bytes == source.element_bytes || source.cols == 1) source.col_stride_bytes = 0;
  return source;
}

/// Which of `where.sums` the first tile of the source goes to.
constexpr std::int64_t first_sum(const land_digest& where) {
  return (where.row / digest_tile_rows - where.tile_row) * where.tiles_across + where.col / digest_tile_cols -
         where.tile_col;
}

}  // namespace detail
}  // namespace wreload
