#pragma once
/// `digest_tiles`: adds up the digests of tiles of tensors, of what lies in memory or of what it copies.

#include <cstddef>
#include <cstdint>

#include "../core/job.hpp"
#include "../core/shape.hpp"
#include "../core/storage_map.hpp"
#include "../numerics/digest.hpp"
#include "../tuning/digest_tiles.hpp"
#include "bytes.cuh"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// A rectangle cut into units of `unit_rows` rows x `strip_bytes` of a row, on the grid of the tiles: no unit lies in two
/// tiles. Bytes of a row are counted from the first tile that it touches.
///
///   destination  null, or where the rectangle is copied to, columns contiguous. Then `vector_bytes` is not 0
///   map          device memory: of the destination's rows where there is one, else of the source; null: none
///   sums         of the tile that has the first element, and on from there
struct digest_task {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  const storage_map* map = nullptr;
  std::uint64_t* sums = nullptr;
  std::int64_t tiles_across = 0;  ///< from a sum to that of the tile below
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t source_row_stride_bytes = 0;
  std::int64_t source_col_stride_bytes = 0;  ///< 0: columns are contiguous
  std::int64_t destination_row_stride_bytes = 0;
  std::int64_t map_row = 0;
  std::int64_t map_byte = 0;
  std::uint32_t first_row = 0;   ///< of the first tile
  std::uint32_t first_byte = 0;
  std::uint32_t first_unit = 0;
  std::uint32_t strips = 1;
  std::uint16_t unit_rows = 0;
  std::uint8_t element_bytes = 0;
  std::uint8_t vector_bytes = 0;  ///< alignment of 16-byte vectors on the grid: 16 or 4 (of the source; the destination's
                                  ///< is 16); 0: no vectors

  std::uint64_t units() const {
    return static_cast<std::uint64_t>(ceil_div(first_row + rows, unit_rows) - first_row / unit_rows) * strips;
  }
};

/// Where vectors on the tiles' grid lie in memory: their alignment in bytes, 16, 8, 4, 2 or 1.
inline int grid_alignment(const std::byte* first, std::int64_t first_byte, std::int64_t rows, std::int64_t row_stride_bytes) {
  const auto apart = static_cast<std::uint64_t>(reinterpret_cast<std::intptr_t>(first) - first_byte) |
                     static_cast<std::uint64_t>(rows == 1 ? 0 : row_stride_bytes) | 16;
  return static_cast<int>(apart & (~apart + 1));
}

/// The task of a job that has elements.
///
///   map  the job's map in host memory, and `device_map` the same in device memory; null: none
inline digest_task make_task(const digest_job& job, const storage_map* map, const storage_map* device_map,
                             std::uint64_t* sums, std::int64_t tiles_across) {
  digest_task task{.source = job.data,
                   .map = device_map,
                   .sums = sums,
                   .tiles_across = tiles_across,
                   .rows = job.rows,
                   .row_bytes = job.cols * job.element_bytes,
                   .source_row_stride_bytes = job.row_stride_bytes,
                   .source_col_stride_bytes = job.col_stride_bytes,
                   .map_row = job.map_row,
                   .map_byte = job.map_col * job.element_bytes,
                   .first_row = static_cast<std::uint32_t>(job.row % digest_tile_rows),
                   .first_byte = static_cast<std::uint32_t>(job.col % digest_tile_cols * job.element_bytes),
                   .element_bytes = static_cast<std::uint8_t>(job.element_bytes)};
  constexpr std::int64_t strip = tuning::digest_tiles::strip_bytes;
  const bool is_narrow = task.row_bytes <= tuning::digest_tiles::narrow_bytes;
  task.unit_rows = is_narrow ? digest_tile_rows : tuning::digest_tiles::unit_rows;
  task.strips = static_cast<std::uint32_t>(ceil_div(task.first_byte + task.row_bytes, strip) - task.first_byte / strip);
  if (job.col_stride_bytes == 0 && (map == nullptr || keeps_rows(*map)) &&
      grid_alignment(job.data + task.map_byte, task.first_byte, map == nullptr ? job.rows : 2, job.row_stride_bytes) == 16)
    task.vector_bytes = 16;
  return task;
}

/// Makes the task of a landing's source (see `detail::digest_of_source`; not of a transposed one) land it, too; or returns
/// false: it only reads.
inline bool land_with(digest_task& task, const land_job& job, const storage_map* map, const storage_map* device_map) {
  if (job.from != job.to || task.source_col_stride_bytes != 0 || (map != nullptr && !keeps_rows(*map))) return false;
  std::byte* destination = job.destination + (map == nullptr ? 0 : job.map_col * task.element_bytes);
  const int from = grid_alignment(job.source, task.first_byte, job.rows, job.source_row_stride_bytes);
  const int to = grid_alignment(destination, task.first_byte, map == nullptr ? job.rows : 2, job.destination_row_stride_bytes);
  if (from < 4 || to < 16) return false;
  task.vector_bytes = from == 16 ? 16 : 4;
  task.destination = destination;
  task.destination_row_stride_bytes = job.destination_row_stride_bytes;
  task.map = device_map;
  task.map_row = job.map_row;
  return true;
}

/// Rows [first, first + count) x bytes [begin, end) of a task: a unit, or an edge of one.
struct digest_place {
  std::int64_t first;
  std::int64_t begin, end;
  int count;
  int tile_row;  ///< of `first`
};

/// Byte `byte` of row `row` of the source.
__device__ inline const std::byte* source_byte(const digest_task& task, std::int64_t row, std::int64_t byte) {
  if (task.map != nullptr && task.destination == nullptr)
    return task.source + map_offset(*task.map, task.map_row + row, task.map_byte + byte, task.source_row_stride_bytes);
  if (task.source_col_stride_bytes != 0)
    byte = byte / task.element_bytes * task.source_col_stride_bytes + byte % task.element_bytes;
  return task.source + row * task.source_row_stride_bytes + byte;
}

/// This lane's share, half-word by half-word, whatever the alignment and the map. Lands them where the task does.
__device__ inline std::uint64_t halves_share(const digest_task& task, const std::uint64_t* row_weights,
                                             const digest_place& at) {
  if (at.begin >= at.end) return 0;
  const std::int64_t tile_bytes = digest_tile_cols * task.element_bytes;
  const std::int64_t first_half = (task.first_byte + at.begin) / 2;
  const auto across = static_cast<std::uint32_t>((task.first_byte + at.end + 1) / 2 - first_half);
  const bool is_run = (task.map == nullptr || task.destination != nullptr) && task.source_col_stride_bytes == 0;
  std::uint64_t sum = 0;
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x % 32; i < static_cast<std::uint32_t>(at.count) * across; i += 32) {
    const std::uint32_t down = i / across;
    const std::int64_t half = first_half + i % across, row = at.first + down, low = 2 * half - task.first_byte;
    const bool has_first = low >= at.begin, has_second = low + 1 < at.end;
    std::uint32_t bits = 0;
    if (is_run && has_first && has_second) {
      bits = load_any<std::uint16_t>(source_byte(task, row, low));
    } else {
#pragma unroll 1
      for (int byte = has_first ? 0 : 1; byte < (has_second ? 2 : 1); ++byte)
        bits |= std::uint32_t{static_cast<std::uint8_t>(*source_byte(task, row, low + byte))} << (8 * byte);
    }
    if (task.destination != nullptr) {
      const std::int64_t to = task.map != nullptr ? map_row(*task.map, task.map_row + row) : row;
      std::byte* put = task.destination + to * task.destination_row_stride_bytes + low;
      if (has_first) put[0] = static_cast<std::byte>(bits);
      if (has_second) put[1] = static_cast<std::byte>(bits >> 8);
    }
    sum += row_weights[at.tile_row + static_cast<int>(down)] * bits *
           digest_half_weight(static_cast<std::uint32_t>(half % (tile_bytes / 2)));
  }
  return sum;
}

/// A sum of weight * word mod 2^64, in two multiply-adds a word: the upper half of the weight has a sum of its own. (Written
/// out with a carry, ptxas makes one wide multiply-add of the first; left to itself it splits that in three.)
struct weighted {
  std::uint32_t low = 0, carried = 0, high = 0;
  __device__ void add(std::uint64_t weight, std::uint32_t word) {
    asm("mad.lo.cc.u32 %0, %2, %3, %0;\n\tmadc.hi.u32 %1, %2, %3, %1;"
        : "+r"(low), "+r"(carried)
        : "r"(static_cast<std::uint32_t>(weight)), "r"(word));
    high += static_cast<std::uint32_t>(weight >> 32) * word;
  }
  __device__ std::uint64_t sum() const { return low + (std::uint64_t{carried + high} << 32); }
};

/// This lane's share of the vectors of a unit: one column of 16 bytes, `at.begin` its first, where `mine`. Row weights are
/// applied on the way, a half-word's when the column is through: a word costs five multiplications and shifts.
template <int Alignment, bool Lands, bool Mapped>
__device__ std::uint64_t column_share(const digest_task& task, const std::uint64_t* row_weights, const digest_place& at,
                                      bool mine) {
  constexpr int depth = tuning::digest_tiles::loads_per_lane;
  const std::int64_t source_stride = task.source_row_stride_bytes;
  const std::int64_t destination_stride = task.destination_row_stride_bytes;
  const std::byte* source = task.source + at.begin + (Mapped && !Lands ? task.map_byte : 0);
  std::byte* destination = task.destination + at.begin;
  __builtin_assume(__isGlobal(source));
  if constexpr (Lands) __builtin_assume(__isGlobal(destination));
  if (!(Mapped && !Lands)) source += at.first * source_stride;
  if (!(Mapped && Lands)) destination += at.first * destination_stride;
  weighted words[4], highs[4];  // words, and their upper halves
#pragma unroll 1
  for (int begin = 0; begin < at.count; begin += depth) {
    // With a map, lane i of each group of `depth` finds out where row `begin + i` lies.
    std::int64_t mapped = 0;
    if constexpr (Mapped) mapped = map_row(*task.map, task.map_row + at.first + begin + threadIdx.x % depth);
    uint4 read[depth];
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      const std::int64_t row = Mapped && !Lands ? __shfl_sync(0xFFFFFFFFU, mapped, i) : begin + i;
      read[i] = {};
      if (mine && begin + i < at.count) read[i] = load_vector<Alignment>(source + row * source_stride);
    }
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      if constexpr (Lands) {
        const std::int64_t row = Mapped ? __shfl_sync(0xFFFFFFFFU, mapped, i) : begin + i;
        if (mine && begin + i < at.count) *reinterpret_cast<uint4*>(destination + row * destination_stride) = read[i];
      }
      const std::uint64_t weight = row_weights[at.tile_row + begin + i];
      const std::uint32_t vector[4] = {read[i].x, read[i].y, read[i].z, read[i].w};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        words[word].add(weight, vector[word]);
        highs[word].add(weight, vector[word] >> 16);
      }
    }
  }
  const auto tile_bytes = static_cast<std::uint32_t>(digest_tile_cols) * task.element_bytes;
  const std::uint32_t half = static_cast<std::uint32_t>(task.first_byte + at.begin) % tile_bytes / 2;
  std::uint64_t sum = 0;
#pragma unroll
  for (int word = 0; word < 4; ++word)
    sum += digest_half_weight(half + 2 * word) * (words[word].sum() - (highs[word].sum() << 16)) +
           digest_half_weight(half + 2 * word + 1) * highs[word].sum();
  return sum;
}

template <int Alignment, bool Lands>
__device__ std::uint64_t column_share(const digest_task& task, const std::uint64_t* row_weights, const digest_place& at,
                                      bool mine) {
  return task.map != nullptr ? column_share<Alignment, Lands, true>(task, row_weights, at, mine)
                             : column_share<Alignment, Lands, false>(task, row_weights, at, mine);
}

/// This lane's share of a unit.
__device__ inline std::uint64_t unit_share(const digest_task& task, const std::uint64_t* row_weights,
                                           const digest_place& unit) {
  // Vectors on the grid, from the first that begins in the unit; edges in front of it and behind the last.
  std::int64_t first = (task.first_byte + unit.begin + 15) / 16 * 16 - task.first_byte;
  if (task.vector_bytes == 0 || first > unit.end) first = unit.end;
  const std::int64_t vectors = (unit.end - first) / 16;
  std::uint64_t sum = 0;
  digest_place at = unit;
#pragma unroll 1
  for (int edge = 0; edge < 2; ++edge) {
    at.begin = edge == 0 ? unit.begin : first + 16 * vectors;
    at.end = edge == 0 ? first : unit.end;
    sum += halves_share(task, row_weights, at);
  }
  if (vectors == 0) return sum;
  const int lane = threadIdx.x % 32;
  const bool mine = lane < vectors;
  at.begin = first + 16 * lane;
  if (task.destination == nullptr) return sum + column_share<16, false>(task, row_weights, at, mine);
  if (task.vector_bytes == 16) return sum + column_share<16, true>(task, row_weights, at, mine);
  return sum + column_share<4, true>(task, row_weights, at, mine);
}

/// Adds the digests of tiles to their sums, one warp a unit.
///
/// Meaning:   the sum of `digest_element` over the tile, in any order; where a task has a destination, its bytes are
///            copied there, each once
/// Partial:   any alignment, column phase and map of what is only read
/// Cost:      one kernel for all dtypes; one read of every byte (and one write). Five integer instructions a word
template <int BlockThreads>
__global__ void __launch_bounds__(BlockThreads, tuning::digest_tiles::blocks_per_multiprocessor)
    digest_tiles(const __grid_constant__ work<digest_task> todo) {
  __shared__ std::uint64_t row_weights[digest_tile_rows + tuning::digest_tiles::loads_per_lane];
  for (std::uint32_t row = threadIdx.x; row < sizeof row_weights / sizeof *row_weights; row += BlockThreads)
    row_weights[row] = digest_row_weight(row);
  if (enter(todo.gate)) {
    for_each_unit<BlockThreads>(todo, [&](const digest_task& task, std::uint32_t unit) {
      constexpr std::int64_t strip = tuning::digest_tiles::strip_bytes;
      // On the grid.
      const std::int64_t row = std::int64_t{task.first_row / task.unit_rows + unit / task.strips} * task.unit_rows;
      const std::int64_t byte = std::int64_t{task.first_byte / strip + unit % task.strips} * strip;
      const std::int64_t first = max(row - task.first_row, std::int64_t{0});
      const std::int64_t last = min(row + task.unit_rows - task.first_row, task.rows);
      const digest_place at{first, max(byte - task.first_byte, std::int64_t{0}),
                            min(byte + strip - task.first_byte, task.row_bytes), static_cast<int>(last - first),
                            static_cast<int>((task.first_row + first) % digest_tile_rows)};
      std::uint64_t sum = unit_share(task, row_weights, at);
#pragma unroll
      for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, apart);
      const std::int64_t tile = row / digest_tile_rows * task.tiles_across + byte / (digest_tile_cols * task.element_bytes);
      if (threadIdx.x % 32 == 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(task.sums + tile), static_cast<unsigned long long>(sum));
      __syncwarp();  // the task is read to here
    });
  }
  leave(todo.gate);
}

}  // namespace kernel
}  // namespace wreload
