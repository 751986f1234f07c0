#pragma once
/// `storage_map`: where a byte of a checkpoint matrix lies in runtime storage, as a plain record that host loops and
/// kernels evaluate while landing. policy/map.hpp makes it from a layout.

#include <cstdint>
#include <type_traits>

#include "config.hpp"

namespace wreload {

/// One reordering of whole rows. The formulas give where row r goes.
enum class row_step_kind : std::uint8_t {
  none,              ///< r
  shuffle16,         ///< TRT-LLM's shuffle in blocks of 16 rows: 16*(r/16) + 8*(r%2) + (r%16)/2
  shuffle32,         ///< the same in blocks of 32 rows: 32*(r/32) + 8*(r%4) + (r%32)/4
  gated_interleave,  ///< row u of half h goes to 2*u + h; rows behind the two halves stay
  swap_halves,       ///< row u of half h goes to row u of the other half; rows behind the two halves stay
};

struct row_step {
  row_step_kind kind = row_step_kind::none;
  std::int64_t half_rows = 0;  ///< rows of one half, for the two steps that have halves
  friend constexpr bool operator==(const row_step&, const row_step&) = default;
};

inline constexpr int max_row_steps = 4;

/// A bijection from (row, column byte) of one slot's checkpoint matrix, pads included, to a byte of its storage.
///
///   slot     one matrix: a dense weight, or one expert of a stacked one; (padded rows, padded columns)
///   rows     permuted by `steps[0]`, then `steps[1]`, ...; `none` fills what is not used
///   storage  row-major, with a row stride that the caller gives; else
///            MN-major: the transpose, row-major, with such a stride; element (row, col) is number row of storage row
///            col
///            swizzled: 128x4 scale order, [rows / 128, tile_cols, 32, 4, 4] bytes without gaps; rows a multiple of
///            128, columns of 4; elements of one byte
///
/// Source: TensorRT-LLM and FlashInfer `shuffle_matrix_a`, `get_sf_out_offset_128x4`; CUTLASS sm100 block-scaled layout
struct storage_map {
  row_step steps[max_row_steps] = {{}, {}, {}, {}};
  bool swizzled = false;
  std::int64_t tile_cols = 0;       ///< padded columns / 4 where swizzled
  std::int64_t mn_major_bytes = 0;  ///< of an element where MN-major; 0: it is not
  friend constexpr bool operator==(const storage_map&, const storage_map&) = default;
};

/// A byte of a checkpoint matrix.
struct matrix_position {
  std::int64_t row = 0;
  std::int64_t col = 0;
  friend constexpr bool operator==(const matrix_position&, const matrix_position&) = default;
};

/// Rows [begin, end).
struct row_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend constexpr bool operator==(const row_range&, const row_range&) = default;
};

static_assert(std::is_trivially_copyable_v<storage_map> && std::is_trivially_copyable_v<matrix_position>);

namespace detail {

inline constexpr std::int64_t swizzle_rows = 128;
inline constexpr std::int64_t swizzle_cols = 4;
inline constexpr std::int64_t swizzle_tile_bytes = swizzle_rows * swizzle_cols;

template <int Block>
WRELOAD_HOST_DEVICE constexpr std::int64_t shuffle_row(std::int64_t row) {
  return row - row % Block + 8 * (row % (Block / 8)) + row % Block / (Block / 8);
}
template <int Block>
WRELOAD_HOST_DEVICE constexpr std::int64_t unshuffle_row(std::int64_t row) {
  return row - row % Block + Block / 8 * (row % 8) + row % Block / 8;
}

WRELOAD_HOST_DEVICE constexpr std::int64_t swap_row(std::int64_t row, std::int64_t half_rows) {
  if (row >= 2 * half_rows) return row;
  return row < half_rows ? row + half_rows : row - half_rows;
}

WRELOAD_HOST_DEVICE constexpr std::int64_t map_row(const row_step& step, std::int64_t row) {
  switch (step.kind) {
    case row_step_kind::none: return row;
    case row_step_kind::shuffle16: return shuffle_row<16>(row);
    case row_step_kind::shuffle32: return shuffle_row<32>(row);
    case row_step_kind::gated_interleave:
      if (row >= 2 * step.half_rows) return row;
      return row < step.half_rows ? 2 * row : 2 * (row - step.half_rows) + 1;
    case row_step_kind::swap_halves: return swap_row(row, step.half_rows);
  }
  return row;
}

WRELOAD_HOST_DEVICE constexpr std::int64_t unmap_row(const row_step& step, std::int64_t row) {
  switch (step.kind) {
    case row_step_kind::none: return row;
    case row_step_kind::shuffle16: return unshuffle_row<16>(row);
    case row_step_kind::shuffle32: return unshuffle_row<32>(row);
    case row_step_kind::gated_interleave:
      return row >= 2 * step.half_rows ? row : row % 2 * step.half_rows + row / 2;
    case row_step_kind::swap_halves: return swap_row(row, step.half_rows);
  }
  return row;
}

constexpr row_range map_rows(const row_step& step, row_range rows) {
  const std::int64_t half = step.half_rows;
  switch (step.kind) {
    case row_step_kind::none: return rows;
    case row_step_kind::shuffle16: return {rows.begin / 16 * 16, (rows.end + 15) / 16 * 16};
    case row_step_kind::shuffle32: return {rows.begin / 32 * 32, (rows.end + 31) / 32 * 32};
    case row_step_kind::gated_interleave:
    case row_step_kind::swap_halves: break;
  }
  if (rows.begin >= 2 * half) return rows;
  const std::int64_t first = rows.begin < half ? 0 : half;  // of the half that the range begins in
  if (rows.end > first + half) return {0, rows.end > 2 * half ? rows.end : 2 * half};
  if (step.kind == row_step_kind::gated_interleave) return {2 * (rows.begin - first), 2 * (rows.end - first)};
  return {rows.begin + half - 2 * first, rows.end + half - 2 * first};
}

}  // namespace detail

/// Whole rows stay whole: a row lies `map_row(map, row) * row_stride_bytes` behind the slot's first byte.
WRELOAD_HOST_DEVICE constexpr bool keeps_rows(const storage_map& map) {
  return !map.swizzled && map.mn_major_bytes == 0;
}

/// Row-major in checkpoint order: a sender may write storage directly.
WRELOAD_HOST_DEVICE constexpr bool is_identity(const storage_map& map) {
  for (const row_step& step : map.steps)
    if (step.kind != row_step_kind::none) return false;
  return keeps_rows(map);
}

/// The row of the runtime matrix (before any swizzle) that holds a checkpoint row.
WRELOAD_HOST_DEVICE constexpr std::int64_t map_row(const storage_map& map, std::int64_t row) {
  for (const row_step& step : map.steps) row = detail::map_row(step, row);
  return row;
}

/// A range of rows of the runtime matrix that holds checkpoint rows; tight but for blocks that are shuffled and halves
/// that are mixed.
constexpr row_range map_rows(const storage_map& map, row_range rows) {
  for (const row_step& step : map.steps) rows = detail::map_rows(step, rows);
  return rows;
}

/// The checkpoint row that a row of the runtime matrix holds.
WRELOAD_HOST_DEVICE constexpr std::int64_t unmap_row(const storage_map& map, std::int64_t row) {
  for (int step = max_row_steps - 1; step >= 0; --step) row = detail::unmap_row(map.steps[step], row);
  return row;
}

/// The byte of the slot's storage that holds byte `col` of a checkpoint row. `row_stride_bytes` is not read where the
/// map is swizzled.
WRELOAD_HOST_DEVICE constexpr std::int64_t map_offset(const storage_map& map, std::int64_t row, std::int64_t col,
                                                      std::int64_t row_stride_bytes) {
  const std::int64_t to = map_row(map, row);
  if (keeps_rows(map)) return to * row_stride_bytes + col;
  if (const std::int64_t element = map.mn_major_bytes; element != 0)
    return col / element * row_stride_bytes + to * element + col % element;
  const std::int64_t tile = to / detail::swizzle_rows * map.tile_cols + col / detail::swizzle_cols;
  return tile * detail::swizzle_tile_bytes + to % 32 * 16 + to % detail::swizzle_rows / 32 * 4 +
         col % detail::swizzle_cols;
}

/// Which byte of the checkpoint matrix a byte of the slot's storage holds; it may be a pad, or lie in the gap between
/// two rows of storage. Requires: row_stride_bytes > 0 (not swizzled), tile_cols > 0 (swizzled).
WRELOAD_HOST_DEVICE constexpr matrix_position unmap_offset(const storage_map& map, std::int64_t offset,
                                                           std::int64_t row_stride_bytes) {
  if (keeps_rows(map)) return {unmap_row(map, offset / row_stride_bytes), offset % row_stride_bytes};
  if (const std::int64_t element = map.mn_major_bytes; element != 0)
    return {unmap_row(map, offset % row_stride_bytes / element),
            offset / row_stride_bytes * element + offset % element};
  const std::int64_t tile = offset / detail::swizzle_tile_bytes;
  const std::int64_t within = offset % detail::swizzle_tile_bytes;
  const std::int64_t row = tile / map.tile_cols * detail::swizzle_rows + within % 16 / 4 * 32 + within / 16;
  return {unmap_row(map, row), tile % map.tile_cols * detail::swizzle_cols + within % detail::swizzle_cols};
}

/// How many bytes of a row's part [col, col_end) follow one another in storage from `col` on: all of them, or at most 4
/// where swizzled and an element where MN-major.
WRELOAD_HOST_DEVICE constexpr std::int64_t contiguous_bytes(const storage_map& map, std::int64_t col,
                                                            std::int64_t col_end) {
  if (keeps_rows(map)) return col_end - col;
  const std::int64_t unit = map.swizzled ? detail::swizzle_cols : map.mn_major_bytes;
  const std::int64_t run = unit - col % unit;
  return col_end - col < run ? col_end - col : run;
}

}  // namespace wreload
