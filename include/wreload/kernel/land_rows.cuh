#pragma once
/// `land_rows`: copies the rectangles of a whole bucket into runtime storage, or compares them with it.

#include <cstddef>
#include <cstdint>

#include "../core/storage_map.hpp"
#include "../numerics/widen.hpp"
#include "../tuning/land_rows.hpp"
#include "bytes.cuh"
#include "land_task.cuh"
#include "swizzled_rows.cuh"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

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
