#pragma once
/// `dequant_rows`: dequantises rows of FP8 by block scales, in place or out of place.

#include <cstddef>
#include <cstdint>

#include "../core/job.hpp"
#include "../core/shape.hpp"
#include "../tuning/dequant_rows.hpp"
#include "bytes.cuh"
#include "convert.cuh"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// Division by a number known at launch, without a division: n / divisor for n < 2^31 in three instructions, exactly
/// (Granlund and Montgomery). Divisor 0 stands for "one block takes all": every quotient is 0. So block sizes need no
/// kernels of their own.
struct block_divisor {
  std::uint32_t multiplier = 0;
  std::uint32_t shift = 31;

  block_divisor() = default;
  explicit block_divisor(std::uint32_t divisor) {
    if (divisor == 0) return;
    shift = 0;
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    const std::uint64_t excess = (std::uint64_t{1} << shift) - divisor;
    multiplier = static_cast<std::uint32_t>((excess << 32) / divisor + 1);
  }
  __device__ std::uint32_t divide(std::uint32_t n) const { return (__umulhi(multiplier, n) + n) >> shift; }
};

/// Block sizes of a key.
struct dequant_blocks {
  block_divisor rows = {};
  block_divisor cols = {};
};

/// A `dequant_job` in units of `unit_rows` rows.
struct dequant_task {
  enum path_kind : std::uint32_t {
    wide_one_scale,  ///< 16-byte stores, all elements of a store in one scale block
    wide,            ///< 16-byte stores, a scale looked up for each element
    single           ///< single elements at any alignment
  };

  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  const std::byte* scale = nullptr;
  std::int64_t source_row_stride_bytes = 0;
  std::int64_t destination_row_stride_bytes = 0;
  std::int64_t scale_row_stride_bytes = 0;
  std::uint32_t first_unit = 0;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint32_t row_phase = 0;
  std::uint32_t col_phase = 0;
  std::uint32_t unit_rows = 1;
  path_kind path = single;

  std::uint64_t units() const { return ceil_div(rows, unit_rows); }
};

/// Most rows and columns of a task: indices are 32 bits wide, offsets 64.
inline constexpr std::int64_t most_dequant_extent = std::int64_t{1} << 30;

/// The task of a job with at most `most_dequant_extent` rows and columns.
inline dequant_task make_task(const dequant_job& job, const dequant_key& key) {
  using choice = tuning::dequant_rows;
  const std::int64_t runtime = bytes_of(key.runtime);
  const std::int64_t wide = choice::bytes_per_store / runtime;
  dequant_task task{.source = job.source,
                    .destination = job.destination,
                    .scale = job.scale,
                    .source_row_stride_bytes = job.source_row_stride_bytes,
                    .destination_row_stride_bytes = job.destination_row_stride_bytes,
                    .scale_row_stride_bytes = job.scale_row_stride_bytes,
                    .rows = static_cast<std::uint32_t>(job.rows),
                    .cols = static_cast<std::uint32_t>(job.cols),
                    .row_phase = static_cast<std::uint32_t>(job.row_phase),
                    .col_phase = static_cast<std::uint32_t>(job.col_phase)};
  const std::int64_t rows = choice::unit_elements / job.cols;
  task.unit_rows =
      static_cast<std::uint32_t>(rows < 1 ? 1 : rows > choice::most_unit_rows ? choice::most_unit_rows : rows);
  const auto aligned = [&](const std::byte* first, std::int64_t stride, std::int64_t to) {
    return reinterpret_cast<std::uintptr_t>(first) % static_cast<std::uintptr_t>(to) == 0 &&
           (job.rows == 1 || stride % to == 0);
  };
  const std::int64_t scale_bytes = bytes_of(key.scale);
  if (aligned(job.source, job.source_row_stride_bytes, wide) &&
      aligned(job.destination, job.destination_row_stride_bytes, choice::bytes_per_store) &&
      aligned(job.scale, job.scale_row_stride_bytes, scale_bytes)) {
    const bool one_scale = key.block_cols == 0 || (key.block_cols % wide == 0 && job.col_phase % wide == 0);
    task.path = one_scale ? dequant_task::wide_one_scale : dequant_task::wide;
  }
  return task;
}

/// Dequantises rows [row, row_end) with one warp. `Wide` elements a lane and step: 8 (4 for fp32) or 1.
///
/// In place, element c goes from byte c to bytes runtime * c and on, so an element must be read before the elements at
/// and left of c / runtime are written. Why that holds here, for any Runtime of 2 or 4 bytes:
///   1. A row belongs to one warp, and rows do not share bytes. Chunks of a row go from the right.
///   2. Stores of the chunk with first element b start at byte runtime * b >= b. What is not read yet when they happen
///      lies left of b (the chunk itself was read by every lane before the __syncwarp; the chunk fetched ahead lies
///      left of b and was read before them, which can only help).
///   3. The last cols % Wide elements are read before the rightmost chunk is stored, and stored at bytes that hold no
///      unread code: with t = cols - cols % Wide >= Wide they start at runtime * t >= 2 t > cols; with t = 0 they are
///      the whole row, read before it is written.
template <class Stored, class Runtime, class Scale, int Wide, bool OneScale>
__device__ void dequant_run(const dequant_task& task, const dequant_blocks& blocks, std::uint32_t row,
                            std::uint32_t row_end) {
  constexpr int loads = OneScale ? tuning::dequant_rows::loads_per_lane : 1;
  constexpr std::uint32_t chunk = 32 * loads;  // vectors
  constexpr std::int64_t runtime_bytes = sizeof(code_of<Runtime>);
  using scale_bits = code_of<Scale>;
  struct fetched {  // this lane's part of a chunk
    std::byte* to;
    const std::byte* row_scales;  // unless OneScale
    std::uint32_t col;
    int left;  // vectors from this lane's first on
    uint2 codes[loads];
    std::uint32_t scales[loads];  // codes, if OneScale
  };
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t vectors = task.cols / Wide;
  const std::uint32_t last_chunk = vectors == 0 ? 0 : (vectors - 1) / chunk;

  const auto scales_of = [&](std::uint32_t r) {
    return task.scale + blocks.rows.divide(task.row_phase + r) * task.scale_row_stride_bytes;
  };
  const auto scale_at = [&](const std::byte* scales, std::uint32_t col) {
    const std::byte* at = scales + blocks.cols.divide(task.col_phase + col) * std::int64_t{sizeof(scale_bits)};
    if constexpr (Wide == 1)
      return load_any<scale_bits>(at);
    else
      return __ldg(reinterpret_cast<const scale_bits*>(at));
  };
  const auto fetch = [&](fetched& into, std::uint32_t r, std::uint32_t at) {
    const std::uint32_t first = at * chunk + lane;
    into.col = first * Wide;
    into.left = static_cast<int>(vectors - first);
    into.to = task.destination + r * task.destination_row_stride_bytes + into.col * runtime_bytes;
    into.row_scales = scales_of(r);
    const std::byte* from = task.source + r * task.source_row_stride_bytes + into.col;
    __builtin_assume(__isGlobal(from));
    __builtin_assume(__isGlobal(into.to));
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      if (32 * i >= into.left) continue;
      if constexpr (Wide == 8) into.codes[i] = *reinterpret_cast<const uint2*>(from + 256 * i);
      if constexpr (Wide == 4) into.codes[i].x = *reinterpret_cast<const std::uint32_t*>(from + 128 * i);
      if constexpr (Wide == 1) into.codes[i].x = *reinterpret_cast<const std::uint8_t*>(from + 32 * i);
      if constexpr (OneScale) into.scales[i] = scale_at(into.row_scales, into.col + 32 * Wide * i);
    }
  };
  const auto store = [&](const fetched& have) {
    __builtin_assume(__isGlobal(have.to));
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      if (32 * i >= have.left) continue;
      std::byte* to = have.to + 32 * Wide * runtime_bytes * i;
      const std::uint32_t col = have.col + 32 * Wide * i;
      if constexpr (Wide == 1) {
        store_any(to, dequantise<Stored, Runtime, Scale>(static_cast<std::uint8_t>(have.codes[i].x),
                                                         scale_at(have.row_scales, col)));
      } else {
        float each[Wide];
#pragma unroll
        for (int e = 0; e < Wide; ++e)
          each[e] = codec<Scale>::decode(OneScale ? static_cast<scale_bits>(have.scales[i])
                                                 : scale_at(have.row_scales, col + e));
        *reinterpret_cast<uint4*>(to) = convert_vector<Stored, Runtime>(have.codes[i], each);
      }
    }
  };
  const auto convert_tail = [&](std::uint32_t r) {
    const std::uint32_t col = vectors * Wide + lane;
    const bool mine = col < task.cols;
    const std::byte* source = task.source + r * task.source_row_stride_bytes;
    const auto code = mine ? static_cast<std::uint8_t>(source[col]) : std::uint8_t{0};
    __syncwarp();
    if (mine)
      store_any(task.destination + r * task.destination_row_stride_bytes + col * runtime_bytes,
                dequantise<Stored, Runtime, Scale>(code, scale_at(scales_of(r), col)));
  };

  std::uint32_t at = last_chunk;
  fetched now;
  fetch(now, row, at);
  for (;;) {
    const bool new_row = at == last_chunk;
    const std::uint32_t this_row = row;
    if (at == 0) {
      ++row;
      at = last_chunk;
    } else {
      --at;
    }
    fetched next;
    if (row < row_end) fetch(next, row, at);
    if (Wide > 1 && new_row && vectors * Wide < task.cols) convert_tail(this_row);
    __syncwarp();
    store(now);
    if (row >= row_end) return;
    now = next;
  }
}

/// Dequantises the tasks of one key, one warp a unit.
///
///   source       (rows, cols) Stored
///   destination  (rows, cols) Runtime; may be the source with equal row strides
///   scale        element (r, c) uses block ((row_phase + r) / block_rows, (col_phase + c) / block_cols)
///
/// Meaning:   runtime(w) = rne(fp32(q) * fp32(s)), the bits of `dequantise`
/// Partial:   any cols, phases and alignment; 16-byte stores where rows are aligned
/// Cost:      one kernel per (Stored, Runtime, Scale), whatever the block size; 1 + bytes(Runtime) bytes per element
template <class Stored, class Runtime, class Scale>
__global__ void __launch_bounds__(tuning::dequant_rows::block_threads, tuning::dequant_rows::blocks_per_multiprocessor)
    dequant_rows(const __grid_constant__ work<dequant_task> todo, dequant_blocks blocks) {
  constexpr int wide = tuning::dequant_rows::bytes_per_store / static_cast<int>(sizeof(code_of<Runtime>));
  if (enter(todo.gate))
    for_each_unit<tuning::dequant_rows::block_threads>(todo, [&](const dequant_task& task, std::uint32_t unit) {
      const std::uint32_t row = unit * task.unit_rows;
      const std::uint32_t row_end = min(row + task.unit_rows, task.rows);
      if (task.path == dequant_task::wide_one_scale)
        dequant_run<Stored, Runtime, Scale, wide, true>(task, blocks, row, row_end);
      else if (task.path == dequant_task::wide)
        dequant_run<Stored, Runtime, Scale, wide, false>(task, blocks, row, row_end);
      else
        dequant_run<Stored, Runtime, Scale, 1, false>(task, blocks, row, row_end);
    });
  leave(todo.gate);
}

}  // namespace kernel
}  // namespace wreload
