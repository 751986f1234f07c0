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

/// A `land_job` cut into units of `unit_rows` rows x one segment; a swizzled one into units of 128 storage rows x 4 tiles.
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
  std::uint32_t segments = 1;  ///< per row (swizzled: groups of 16 columns)
  std::int32_t flag = 0;       ///< `compare`: which flag a difference sets
  dtype from = dtype::none;
  dtype to = dtype::none;
  bool runs = false;  ///< rows are copied as runs of bytes

  __host__ __device__ std::int64_t segment() const {
    return runs ? tuning::land_rows::segment_bytes : tuning::land_rows::segment_elements;
  }
  std::uint64_t units() const {
    return (bands != 0 ? bands : static_cast<std::uint64_t>(ceil_div(rows, unit_rows))) * segments;
  }
};

inline constexpr std::int64_t swizzle_group_cols = 16;

/// Cuts a swizzled task: bands that hold one of its rows (all of the slot where halves are mixed), groups of columns.
inline void cut_swizzled(land_task& task, const land_job& job, const storage_map& map) {
  std::int64_t first = job.map_row, end = job.map_row + job.rows;  // storage rows; shuffles stay inside 32 of them
  for (const row_step& step : map.steps)
    if (step.half_rows > 0) {
      first = 0;
      end = std::max(end, 2 * step.half_rows);
    }
  task.first_band = static_cast<std::uint32_t>(first / 128);
  task.bands = static_cast<std::uint32_t>(ceil_div(end, 128) - first / 128);
  task.segments = static_cast<std::uint32_t>(ceil_div(job.map_col + job.cols, swizzle_group_cols) -
                                             job.map_col / swizzle_group_cols);
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
  const std::int64_t rows = task.segment() / task.cols;
  task.unit_rows = static_cast<std::uint32_t>(
      rows < 1 ? 1 : rows > tuning::land_rows::most_unit_rows ? tuning::land_rows::most_unit_rows : rows);
  task.segments = static_cast<std::uint32_t>(ceil_div(task.cols, task.segment()));
  return task;
}

/// Where a row of a task that is not swizzled starts in the destination.
__device__ inline std::byte* destination_row(const land_task& task, std::int64_t row) {
  if (task.map != nullptr) row = map_row(*task.map, task.map_row + row);
  return task.destination + row * task.destination_row_stride_bytes;
}

/// Sink: writes what lands.
struct write_sink {
  __device__ void put(std::byte* at, std::byte value) { *at = value; }
  __device__ void put(std::byte* at, uint4 value) { *reinterpret_cast<uint4*>(at) = value; }
  __device__ void put(std::byte* at, std::uint64_t code, int bytes) { store_any(at, code, bytes); }
  __device__ void end_unit(std::uint32_t*) {}
};

/// Sink: reads the destination and sets a flag where landing would change it.
struct compare_sink {
  bool differs = false;
  __device__ void put(const std::byte* at, std::byte value) { differs |= *at != value; }
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

template <int Alignment, class Sink>
__device__ void put_vectors(Sink& sink, const std::byte* source, std::byte* destination, int vectors) {
  constexpr int loads = tuning::land_rows::loads_per_lane;
  const int lane = threadIdx.x % 32;
  source += 16 * lane;
  destination += 16 * lane;
  for (int left = vectors - lane; left > 0; left -= 32 * loads) {
    uint4 read[loads];
#pragma unroll
    for (int i = 0; i < loads; ++i)
      if (32 * i < left) read[i] = load_vector<Alignment>(source + 512 * i);
#pragma unroll
    for (int i = 0; i < loads; ++i)
      if (32 * i < left) sink.put(destination + 512 * i, read[i]);
    source += 512 * loads;
    destination += 512 * loads;
  }
}

/// Puts a run of bytes (at most a segment) with one warp: 16-byte stores in the middle, single bytes at the edges.
/// Neither writes nor reads a byte outside the run: where the words around a vector are read (see `load_vector`), edges
/// are 4 bytes or more.
template <class Sink>
__device__ void put_run(Sink& sink, const std::byte* source, std::byte* destination, int bytes) {
  const int lane = threadIdx.x % 32;
  __builtin_assume(__isGlobal(source));
  __builtin_assume(__isGlobal(destination));
  int head = static_cast<int>((16 - misalignment(destination, 16)) % 16);
  const std::uint32_t shift = misalignment(source + head, 16);
  const bool reads_around = shift % 4 != 0;
  if (reads_around && head < 4) head += 16;
  const int rest = bytes - head - (reads_around ? 4 : 0);
  const int vectors = rest > 0 ? rest / 16 : 0;
  if (vectors == 0) head = 0;
  const std::byte* from = source + head;
  std::byte* to = destination + head;
  if (shift == 0)
    put_vectors<16>(sink, from, to, vectors);
  else if (shift % 8 == 0)
    put_vectors<8>(sink, from, to, vectors);
  else if (shift % 4 == 0)
    put_vectors<4>(sink, from, to, vectors);
  else
    put_vectors<1>(sink, from, to, vectors);
  for (int i = lane; i < head; i += 32) sink.put(destination + i, source[i]);
  for (int i = head + 16 * vectors + lane; i < bytes; i += 32) sink.put(destination + i, source[i]);
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

/// Lands 128 storage rows x 4 tiles of a swizzled task with one warp: a lane reads 16 columns of the 4 rows that lie side
/// by side in each tile (l, l + 32, l + 64, l + 96 of the band), and puts 16 bytes into each of the 4 tiles; single bytes
/// where a row or a column is not the task's. Source order follows the map, so no byte of another task is touched.
template <class Sink>
__device__ void put_swizzled(Sink& sink, const land_task& task, std::uint32_t unit) {
  const std::int64_t lane = threadIdx.x % 32;
  const std::int64_t band = task.first_band + unit / task.segments;
  const std::int64_t group = task.map_col / swizzle_group_cols + unit % task.segments;
  const std::int64_t col = group * swizzle_group_cols - task.map_col;  // of the task; may be negative
  const bool whole_cols = col >= 0 && col + swizzle_group_cols <= task.cols;
  std::uint32_t words[4][4];  // [row][tile]
  bool mine[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int64_t row = unmap_row(*task.map, band * 128 + 32 * j + lane) - task.map_row;
    mine[j] = row >= 0 && row < task.rows;
    if (!mine[j]) continue;
    const std::byte* from = task.source + row * task.source_row_stride_bytes + col * task.source_col_stride_bytes;
    if (whole_cols && task.source_col_stride_bytes == 1 && misalignment(from, 16) == 0) {
      const uint4 read = *reinterpret_cast<const uint4*>(from);
      words[j][0] = read.x, words[j][1] = read.y, words[j][2] = read.z, words[j][3] = read.w;
      continue;
    }
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
      words[j][tile] = 0;
      for (int byte = 0; byte < 4; ++byte) {
        const std::int64_t at = col + 4 * tile + byte;
        if (at < 0 || at >= task.cols) continue;
        const auto value = static_cast<std::uint8_t>(from[(4 * tile + byte) * task.source_col_stride_bytes]);
        words[j][tile] |= std::uint32_t{value} << (8 * byte);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    const std::int64_t first = col + 4 * tile;
    if (first + 4 <= 0 || first >= task.cols) continue;
    std::byte* to = task.destination + (band * task.map->tile_cols + group * 4 + tile) * 512 + lane * 16;
    if (mine[0] && mine[1] && mine[2] && mine[3] && first >= 0 && first + 4 <= task.cols && misalignment(to, 16) == 0) {
      sink.put(to, uint4{words[0][tile], words[1][tile], words[2][tile], words[3][tile]});
      continue;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
      for (int byte = 0; mine[j] && byte < 4; ++byte)
        if (first + byte >= 0 && first + byte < task.cols)
          sink.put(to + 4 * j + byte, static_cast<std::byte>(words[j][tile] >> (8 * byte)));
  }
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
      for (std::int64_t row = first_row; row < last_row; ++row) {
        const std::byte* source = task.source + row * task.source_row_stride_bytes;
        std::byte* destination = destination_row(task, row);
        if (task.runs) {
          put_run(sink, source + begin, destination + begin, static_cast<int>(end - begin));
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
