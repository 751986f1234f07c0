#pragma once
/// `land_rows`: copies the rectangles of a whole bucket into runtime storage, or compares them with it.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../core/job.hpp"
#include "../core/shape.hpp"
#include "../core/storage_map.hpp"
#include "../numerics/widen.hpp"
#include "../tuning/land_rows.hpp"
#include "bytes.cuh"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// A `land_job` cut into units of `unit_rows` rows x one segment; a swizzled one into units of one band (128 storage
/// rows) x one segment.
///
///   cols  bytes where the rows are copied as runs (`from == to == u8`, source columns contiguous), else elements
///   map   device memory; null: rows lie row-major behind `destination`
struct land_task {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  const storage_map* map = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t source_row_stride_bytes = 0;
  std::int64_t source_col_stride_bytes = 0;
  std::int64_t destination_row_stride_bytes = 0;
  std::int64_t map_row = 0;
  std::int64_t map_col = 0;    ///< of a swizzled task
  std::uint32_t bands = 0;     ///< of a swizzled task: of 128 storage rows; 0: not swizzled
  std::uint32_t first_band = 0;
  std::uint32_t first_unit = 0;
  std::uint32_t unit_rows = 1;
  std::uint32_t segments = 1;  ///< per row
  std::int32_t flag = 0;       ///< `compare`: which flag a difference sets
  dtype from = dtype::none;
  dtype to = dtype::none;
  bool runs = false;   ///< rows are copied as runs of bytes
  bool alike = false;  ///< and all lie alike in 16 bytes, evenly apart: a unit's rows are put together

  __host__ __device__ std::int64_t segment() const {
    return runs ? tuning::land_rows::segment_bytes : tuning::land_rows::segment_elements;
  }
  std::uint64_t units() const {
    return (bands != 0 ? bands : static_cast<std::uint64_t>(ceil_div(rows, unit_rows))) * segments;
  }
};

inline constexpr int swizzle_group_cols = 16;  ///< what a lane reads of a row at once; segments begin at a multiple

/// Cuts a swizzled task: the bands that its rows can lie in, and segments of `swizzle_unit_cols` columns.
inline void cut_swizzled(land_task& task, const land_job& job, const storage_map& map) {
  const row_range rows = map_rows(map, {job.map_row, job.map_row + job.rows});
  task.first_band = static_cast<std::uint32_t>(rows.begin / 128);
  task.bands = static_cast<std::uint32_t>(ceil_div(rows.end, 128) - rows.begin / 128);
  const std::int64_t first_col = job.map_col / swizzle_group_cols * swizzle_group_cols;
  task.segments = static_cast<std::uint32_t>(
      ceil_div(job.map_col + job.cols - first_col, tuning::land_rows::swizzle_unit_cols));
}

/// The task of a job that has elements. Rows that follow each other evenly on both sides become one.
///
///   map     the job's map in host memory, and `device_map` the same in device memory; null: none
inline land_task make_task(const land_job& job, const storage_map* map, const storage_map* device_map) {
  land_task task{.source = job.source,
                 .destination = job.destination,
                 .map = device_map,
                 .rows = job.rows,
                 .cols = job.cols,
                 .source_row_stride_bytes = job.source_row_stride_bytes,
                 .source_col_stride_bytes = job.source_col_stride_bytes,
                 .destination_row_stride_bytes = job.destination_row_stride_bytes,
                 .map_row = job.map_row,
                 .map_col = job.map_col,
                 .from = job.from,
                 .to = job.to};
  const std::int64_t element = bytes_of(job.from);
  if (map != nullptr && !keeps_rows(*map)) {
    cut_swizzled(task, job, *map);
    return task;
  }
  if (map != nullptr) task.destination += job.map_col * bytes_of(job.to);
  if (task.cols == 1) task.source_col_stride_bytes = task.source_row_stride_bytes;
  if (map == nullptr && task.source_row_stride_bytes == task.cols * task.source_col_stride_bytes &&
      task.destination_row_stride_bytes == task.cols * bytes_of(job.to)) {
    task.cols *= task.rows;
    task.rows = 1;
  }
  task.runs = job.from == job.to && (task.cols == 1 || task.source_col_stride_bytes == element);
  if (task.runs) {
    task.cols *= element;
    task.from = task.to = dtype::u8;
  }
  task.alike = task.runs && map == nullptr &&
               (task.rows == 1 || (task.source_row_stride_bytes % 16 == 0 && task.destination_row_stride_bytes % 16 == 0));
  const std::int64_t most_rows = task.alike ? tuning::land_rows::most_alike_rows : tuning::land_rows::most_unit_rows;
  task.unit_rows = static_cast<std::uint32_t>(std::clamp<std::int64_t>(task.segment() / task.cols, 1, most_rows));
  task.segments = static_cast<std::uint32_t>(ceil_div(task.cols, task.segment()));
  return task;
}

/// Where a row of a task that is not swizzled starts in the destination.
__device__ inline std::byte* destination_row(const land_task& task, std::int64_t row) {
  if (task.map != nullptr) row = map_row(*task.map, task.map_row + row);
  return task.destination + row * task.destination_row_stride_bytes;
}

/// Rows of bytes to put, on both sides evenly apart.
struct run_rows {
  std::uint32_t rows = 1;
  std::uint32_t bytes = 0;
  std::int64_t source_stride_bytes = 0;
  std::int64_t destination_stride_bytes = 0;
};

/// Sink: writes what lands.
struct write_sink {
  __device__ void put(std::byte* at, std::byte value) { *at = value; }
  __device__ void put(std::byte* at, std::uint32_t value) { *reinterpret_cast<std::uint32_t*>(at) = value; }
  __device__ void put(std::byte* at, uint4 value) { *reinterpret_cast<uint4*>(at) = value; }
  __device__ void put(std::byte* at, std::uint64_t code, int bytes) { store_any(at, code, bytes); }
  __device__ void end_unit(std::uint32_t*) {}
};

/// Sink: reads the destination and sets a flag where landing would change it.
struct compare_sink {
  bool differs = false;
  __device__ void put(const std::byte* at, std::byte value) { differs |= *at != value; }
  __device__ void put(const std::byte* at, std::uint32_t value) {
    differs |= *reinterpret_cast<const std::uint32_t*>(at) != value;
  }
  __device__ void put(const std::byte* at, uint4 value) {
    const uint4 now = *reinterpret_cast<const uint4*>(at);
    differs |= now.x != value.x || now.y != value.y || now.z != value.z || now.w != value.w;
  }
  __device__ void put(const std::byte* at, std::uint64_t code, int bytes) { differs |= load_any(at, bytes) != code; }
  __device__ void end_unit(std::uint32_t* flag) {
    if (__any_sync(0xFFFFFFFFU, differs) && threadIdx.x % 32 == 0) *static_cast<volatile std::uint32_t*>(flag) = 1;
    differs = false;
  }
};

/// Puts the middle of rows with one warp, 16 bytes at a time: vectors are counted on from row to row, so that short rows
/// keep all lanes busy. Where the source is `Shifted` against 16 bytes, a vector is cut from the two aligned ones that it
/// touches.
template <bool Shifted, class Sink>
__device__ void put_vectors(Sink& sink, const std::byte* source, std::byte* destination, const run_rows& run,
                            std::uint32_t vectors) {
  constexpr int loads = tuning::land_rows::loads_per_lane;
  const std::uint32_t count = vectors * run.rows;
  const std::uint32_t step_rows = 32 / vectors, step = 32 - step_rows * vectors;
  const std::uint32_t shift = Shifted ? misalignment(source, 16) : 0;
  source -= shift;
  std::uint32_t at = threadIdx.x % 32;
  std::uint32_t row = at / vectors, vector = at - row * vectors;
  while (at < count) {
    uint4 read[loads], beyond[Shifted ? loads : 1];
    std::byte* to[loads];
    const std::uint32_t left = count - at;
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      if (32 * i < left) {
        const auto* from = reinterpret_cast<const uint4*>(source + row * run.source_stride_bytes + 16 * vector);
        read[i] = from[0];
        if constexpr (Shifted) beyond[i] = from[1];
        to[i] = destination + row * run.destination_stride_bytes + 16 * vector;
      }
      row += step_rows;
      vector += step;
      if (vector >= vectors) {
        vector -= vectors;
        ++row;
      }
    }
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      if (32 * i >= left) continue;
      if constexpr (Shifted)
        sink.put(to[i], shifted_vector(read[i], beyond[i], shift));
      else
        sink.put(to[i], read[i]);
    }
    at += 32 * loads;
  }
}

/// Puts rows of bytes with one warp: 16-byte stores in the middle, single bytes at the edges. Neither writes nor reads a
/// byte outside the rows: where aligned vectors around the bytes are read, edges are as wide as those reach.
///
/// Requires: all rows lie alike in 16 bytes, on both sides; a row has less than 2^30 bytes
template <class Sink>
__device__ void put_runs(Sink& sink, const std::byte* source, std::byte* destination, const run_rows& run) {
  __builtin_assume(__isGlobal(source));
  __builtin_assume(__isGlobal(destination));
  std::uint32_t head = (16 - misalignment(destination, 16)) % 16;
  const std::uint32_t shift = misalignment(source + head, 16);
  if (head < shift) head += 16;
  const std::uint32_t beyond = shift == 0 ? 0 : 16 - shift;
  const std::uint32_t vectors = run.bytes < head + beyond ? 0 : (run.bytes - head - beyond) / 16;
  if (vectors == 0)
    head = 0;
  else if (shift == 0)
    put_vectors<false>(sink, source + head, destination + head, run, vectors);
  else
    put_vectors<true>(sink, source + head, destination + head, run, vectors);
  const std::uint32_t edges = run.bytes - 16 * vectors;
  for (std::uint32_t i = threadIdx.x % 32; i < edges * run.rows; i += 32) {
    const std::uint32_t row = i / edges, edge = i - row * edges;
    const std::uint32_t at = edge < head ? edge : edge + 16 * vectors;
    sink.put(destination + row * run.destination_stride_bytes + at, source[row * run.source_stride_bytes + at]);
  }
}

/// One code widened exactly; see `widen`. Run-time dtypes: such tensors are small (norms, scales).
__device__ inline std::uint64_t widen_code(dtype from, dtype to, std::uint64_t code) {
  if (from == to) return code;
  if (from == dtype::bf16) return code << 16;
  float value = 0;
  if (from == dtype::fp16) value = codec<fp16>::decode(static_cast<std::uint16_t>(code));
  if (from == dtype::fp8_e4m3) value = codec<fp8_e4m3>::decode(static_cast<std::uint8_t>(code));
  if (from == dtype::fp8_e5m2) value = codec<fp8_e5m2>::decode(static_cast<std::uint8_t>(code));
  if (from == dtype::fp8_ue8m0) value = codec<fp8_ue8m0>::decode(static_cast<std::uint8_t>(code));
  if (to == dtype::fp32) return codec<fp32>::encode(value);
  return to == dtype::bf16 ? codec<bf16>::encode(value) : codec<fp16>::encode(value);
}

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

/// Lands the tasks of a bucket, one warp a unit.
///
/// Meaning:   every element of every task is put once; no other byte is written
/// Partial:   any alignment of either side, any source strides; 64-bit offsets
/// Cost:      one kernel per sink; runs and whole tiles move 2 bytes a byte, element paths are for small or transposed
///            tensors
template <class Sink>
__global__ void __launch_bounds__(tuning::land_rows::block_threads, tuning::land_rows::blocks_per_multiprocessor)
    land_rows(const __grid_constant__ work<land_task> todo, std::uint32_t* flags) {
  if (enter(todo.gate)) {
    Sink sink;
    for_each_unit<tuning::land_rows::block_threads>(todo, [&](const land_task& task, std::uint32_t unit) {
      if (task.bands != 0) {
        put_swizzled(sink, task, unit);
        sink.end_unit(flags + task.flag);
        return;
      }
      const std::int64_t first_row = std::int64_t{unit / task.segments} * task.unit_rows;
      const std::int64_t last_row = min(first_row + task.unit_rows, task.rows);
      const std::int64_t begin = std::int64_t{unit % task.segments} * task.segment();
      const std::int64_t end = min(begin + task.segment(), task.cols);
      const std::uint32_t together = task.alike ? static_cast<std::uint32_t>(last_row - first_row) : 1;
      for (std::int64_t row = first_row; row < last_row; row += together) {
        const std::byte* source = task.source + row * task.source_row_stride_bytes;
        std::byte* destination = destination_row(task, row);
        if (task.runs) {
          put_runs(sink, source + begin, destination + begin,
                   {together, static_cast<std::uint32_t>(end - begin), task.source_row_stride_bytes,
                    task.destination_row_stride_bytes});
          continue;
        }
        const int from_bytes = static_cast<int>(bytes_of(task.from));
        const int to_bytes = static_cast<int>(bytes_of(task.to));
        for (std::int64_t col = begin + threadIdx.x % 32; col < end; col += 32) {
          const std::uint64_t code = load_any(source + col * task.source_col_stride_bytes, from_bytes);
          sink.put(destination + col * to_bytes, widen_code(task.from, task.to, code), to_bytes);
        }
      }
      sink.end_unit(flags + task.flag);
    });
  }
  leave(todo.gate);
}

}  // namespace kernel
}  // namespace wreload
