#pragma once
/// `put_swizzled`: puts rows into storage in 128x4 order.

#include <cstddef>
#include <cstdint>

#include "../core/storage_map.hpp"
#include "../tuning/land_rows.hpp"
#include "bytes.cuh"
#include "land_task.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// One unit of a swizzled task, as its warp sees it: in shared memory, where it costs no registers.
///
/// A cell is 16 bytes of a tile: 4 columns of the rows c, c + 32, c + 64, c + 96 of the band, c = 0..31. A slice is 8
/// cells side by side (8 consecutive c: an octet) x 16 columns: 128 contiguous bytes of each of 4 tiles. The warp takes
/// 4 slices at a time, 8 lanes each. Octets that hold no row of the task are left out: where two tasks share a band by
/// octets (TensorRT-LLM's gate and up), each warp is still full.
///
///   rows         [4, 32]  source of each row of the band, at the unit's column 0 (which may be no column of the task);
///                null: not a row of the task
///   destination  the band's row of tiles, from the unit's first tile on
///   begin, end   columns of the task, counted in the unit; may reach out of it
///   octets       those to land, two bits each, from the lowest
struct swizzled_unit {
  const std::byte* rows[4][32];
  std::byte* destination;
  std::int32_t begin;
  std::int32_t end;
  std::int32_t groups;  ///< of 16 columns
  std::int32_t slices;  ///< all groups of the first octet, of the next, ...
  std::uint32_t octets;
  std::uint32_t whole_cells;  ///< bit c: all 4 rows of cell c are the task's
};

/// Where a lane is when its warp is at some slices.
struct swizzled_place {
  int col;      ///< first of 16, counted in the unit
  int cell;     ///< of the band
  bool inside;  ///< the unit has this slice
  bool whole;   ///< and all 4 rows and all 16 columns are the task's
};

/// This lane's place when the warp is at slices [first, first + 4).
__device__ inline swizzled_place place_at(const swizzled_unit& unit, int first) {
  constexpr int across = tuning::land_rows::swizzle_lanes_across;
  const int lane = threadIdx.x % 32;
  const int slice = first + lane % across + across * (lane / (8 * across));
  const int col = slice % unit.groups * swizzle_group_cols;
  const int octet = static_cast<int>(unit.octets >> (2 * (slice / unit.groups)) & 3);
  const bool inside = slice < unit.slices;
  const int cell = 8 * octet + lane / across % 8;
  return {col, cell, inside,
          inside && (unit.whole_cells >> cell & 1) != 0 && col >= unit.begin && col + swizzle_group_cols <= unit.end};
}

/// Fills in a unit, with one warp.
__device__ inline void prepare(swizzled_unit& unit, const land_task& task, std::uint32_t number) {
  constexpr int unit_cols = tuning::land_rows::swizzle_unit_cols;
  const int lane = threadIdx.x % 32;
  const std::int64_t band = task.first_band + number / task.segments;
  const std::int64_t first_col = task.map_col / swizzle_group_cols * swizzle_group_cols +
                                 std::int64_t{number % task.segments} * unit_cols;
  const std::byte* source = task.source + (first_col - task.map_col) * task.source_col_stride_bytes;
  bool some = false, all = true;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int64_t row = unmap_row(*task.map, band * 128 + 32 * j + lane) - task.map_row;
    const bool mine = row >= 0 && row < task.rows;
    unit.rows[j][lane] = mine ? source + row * task.source_row_stride_bytes : nullptr;
    some |= mine;
    all &= mine;
  }
  const std::uint32_t cells = __ballot_sync(0xFFFFFFFFU, some), whole_cells = __ballot_sync(0xFFFFFFFFU, all);
  if (lane == 0) {
    unit.destination = task.destination + (band * task.map->tile_cols + first_col / 4) * 512;
    unit.begin = static_cast<std::int32_t>(max(task.map_col - first_col, std::int64_t{-swizzle_group_cols}));
    unit.end = static_cast<std::int32_t>(
        min(task.map_col + task.cols - first_col, std::int64_t{unit_cols + swizzle_group_cols}));
    unit.groups = (min(unit.end, unit_cols) + swizzle_group_cols - 1) / swizzle_group_cols;
    int octets = 0;
    unit.octets = 0;
    for (std::uint32_t octet = 0; octet < 4; ++octet)
      if ((cells >> (8 * octet) & 0xFF) != 0) unit.octets |= octet << (2 * octets++);
    unit.slices = octets * unit.groups;
    unit.whole_cells = whole_cells;
  }
  __syncwarp();
}

/// Word `index` of a vector, where the index is known when compiled.
__device__ inline std::uint32_t word_of(const uint4& vector, int index) {
  return index == 0 ? vector.x : index == 1 ? vector.y : index == 2 ? vector.z : vector.w;
}

/// Lands the whole places of a unit: a lane reads 16 columns of the 4 rows of its cell, then puts 16 bytes into each of
/// 4 tiles. Returns whether the lane left anything out.
///
/// Requires: source columns contiguous, source rows aligned to `Alignment`, destination to 16
template <int Alignment, class Sink>
__device__ bool put_whole_cells(Sink& sink, const swizzled_unit& unit) {
  constexpr int depth = tuning::land_rows::swizzle_slices_per_lane;
  bool left = false;
#pragma unroll 1
  for (int first = 0; first < unit.slices; first += 4 * depth) {
    uint4 read[depth][4];
    int to[depth];
    bool whole[depth];
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      const swizzled_place at = place_at(unit, first + 4 * i);
      left |= at.inside && !at.whole;
      whole[i] = at.whole;
      to[i] = at.col / 4 * 512 + at.cell * 16;
      if (!at.whole) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::byte* from = unit.rows[j][at.cell];
        __builtin_assume(__isGlobal(from));
        read[i][j] = load_vector<Alignment>(from + at.col);
      }
    }
    std::byte* destination = unit.destination;
    __builtin_assume(__isGlobal(destination));
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      if (!whole[i]) continue;
#pragma unroll
      for (int tile = 0; tile < 4; ++tile)
        sink.put(destination + to[i] + 512 * tile, uint4{word_of(read[i][0], tile), word_of(read[i][1], tile),
                                                         word_of(read[i][2], tile), word_of(read[i][3], tile)});
    }
  }
  return left;
}

/// Columns [col, col + 4) of a row, `from` on; 0 for those outside [begin, end), which are not read.
__device__ inline std::uint32_t load_columns(const std::byte* from, std::int64_t stride, int col, int begin, int end) {
  const int skip = static_cast<int>(misalignment(from, 4));
  if (stride == 1 && col - skip >= begin && col + (skip == 0 ? 4 : 8 - skip) <= end) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(from - skip);
    return skip == 0 ? words[0] : __funnelshift_r(words[0], words[1], 8 * skip);
  }
  std::uint32_t word = 0;
  for (int byte = 0; byte < 4; ++byte)
    if (col + byte >= begin && col + byte < end)
      word |= std::uint32_t{static_cast<std::uint8_t>(from[byte * stride])} << (8 * byte);
  return word;
}

/// Lands the cells of a unit, 16 bytes at a time where a cell is all the task's, 4 where a row's part of it is, else
/// single bytes; where `done`, only what `put_whole_cells` has left out.
template <class Sink>
__device__ void put_any_cells(Sink& sink, const swizzled_unit& unit, std::int64_t source_col_stride, bool done) {
#pragma unroll 1
  for (int first = 0; first < unit.slices; first += 4) {
    const swizzled_place at = place_at(unit, first);
    if (!at.inside || (done && at.whole)) continue;
    const bool whole_rows = (unit.whole_cells >> at.cell & 1) != 0;
#pragma unroll 1
    for (int col = at.col; col < at.col + swizzle_group_cols; col += 4) {
      if (col + 4 <= unit.begin || col >= unit.end) continue;
      const bool whole_word = col >= unit.begin && col + 4 <= unit.end;
      std::byte* to = unit.destination + col / 4 * 512 + at.cell * 16;
      std::uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::byte* row = unit.rows[j][at.cell];
        words[j] = 0;
        if (row != nullptr)
          words[j] = load_columns(row + col * source_col_stride, source_col_stride, col, unit.begin, unit.end);
      }
      if (whole_rows && whole_word && misalignment(to, 16) == 0) {
        sink.put(to, uint4{words[0], words[1], words[2], words[3]});
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (unit.rows[j][at.cell] == nullptr) continue;
        if (whole_word && misalignment(to, 4) == 0) {
          sink.put(to + 4 * j, words[j]);
          continue;
        }
        for (int byte = 0; byte < 4; ++byte)
          if (col + byte >= unit.begin && col + byte < unit.end)
            sink.put(to + 4 * j + byte, static_cast<std::byte>(words[j] >> (8 * byte)));
      }
    }
  }
}

/// Lands a unit of a swizzled task with one warp. Source order follows the map, so no byte of another task is touched,
/// and none outside the task's rectangle is read.
template <class Sink>
__device__ void put_swizzled(Sink& sink, const land_task& task, std::uint32_t number) {
  __shared__ swizzled_unit units[tuning::land_rows::block_threads / 32];
  swizzled_unit& unit = units[threadIdx.x / 32];
  prepare(unit, task, number);
  bool done = false, left = true;
  if (task.source_col_stride_bytes == 1 && misalignment(unit.destination, 16) == 0) {
    // Where a group's columns begin in a row: a multiple of 16 from there to the task's first column, or a little less.
    const std::uint32_t apart = misalignment(task.source - task.map_col % swizzle_group_cols, 16) |
                                static_cast<std::uint32_t>(task.source_row_stride_bytes);
    done = apart % 4 == 0;
    if (apart % 16 == 0)
      left = put_whole_cells<16>(sink, unit);
    else if (done)
      left = put_whole_cells<4>(sink, unit);
  }
  if (__any_sync(0xFFFFFFFFU, left)) put_any_cells(sink, unit, task.source_col_stride_bytes, done);
  __syncwarp();  // before the next unit takes its place
}

}  // namespace kernel
}  // namespace wreload
