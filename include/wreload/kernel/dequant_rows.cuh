#pragma once
/// `dequant_rows`: dequantises rows of FP8 by block scales, in place or out of place.

#include <cstddef>
#include <cstdint>

#include "../tuning/dequant_rows.hpp"
#include "block_units.cuh"
#include "bytes.cuh"
#include "convert.cuh"
#include "dequant_task.cuh"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// Dequantises units with one block, in chunks: vectors of a unit's rows, counted on from row to row, a few of them a
/// thread. Chunks of a unit go from the right to the left. On path `wide_one_scale` the next chunk is read before the last
/// is stored; units on the other paths are converted in `store`, a vector a thread at a time.
///
/// In place, element c goes from byte c to bytes runtime * c and on, so an element must be read before the elements at
/// and left of c / runtime are written. Why that holds here, for any Runtime of 2 or 4 bytes:
///   1. A row belongs to one unit, a unit to one block, and rows do not share bytes.
///   2. A chunk is stored behind a barrier that follows its reads. In a row, stores of the chunk with first element b start
///      at byte runtime * b >= b. What is not read yet when they happen lies left of b.
///   3. The columns left over of all rows of a unit are read with its first chunk, and stored with it, at bytes that hold
///      no unread code: with t = vectors * width > 0 they start at runtime * t >= 2 t > cols; with t = 0 they are the
///      whole row.
template <class Stored, class Runtime, class Scale>
class dequantiser {
  using choice = tuning::dequant_rows;
  using scale_bits = code_of<Scale>;
  static constexpr std::uint32_t threads = choice::block_threads;
  static constexpr int loads = choice::loads_per_thread;
  static constexpr int wide = choice::bytes_per_store / static_cast<int>(sizeof(code_of<Runtime>));
  static constexpr std::uint32_t chunk = threads * loads;
  static_assert(choice::most_unit_rows * (wide - 1) <= choice::block_threads);

 public:
  /// This thread's part of a chunk.
  struct part {
    std::uint32_t unit = 0;   ///< of the block's
    std::uint32_t first = 0;  ///< vector of the unit
    bool is_first = false;    ///< chunk of its unit: columns left over belong to it
    std::uint8_t left_over = 0;
    uint2 codes[loads];
    std::uint32_t scales[loads];  ///< codes
  };

  __device__ dequantiser(const block_units<dequant_task>& units, const dequant_blocks& blocks)
      : units_(units), blocks_(blocks) {}

  /// Goes to the first chunk of a unit.
  __device__ void begin(part& of, std::uint32_t unit) const {
    const dequant_task& task = units_.task(unit);
    of.unit = unit;
    of.first = task.path == dequant_task::wide_one_scale ? last_multiple(task.vectors * rows_of(task, unit), chunk) : 0;
    of.is_first = true;
  }

  /// Goes on to the left in the unit; false where the chunk was its last.
  __device__ static bool advance(part& to, const part& from) {
    if (from.first == 0) return false;
    to.unit = from.unit;
    to.first = from.first - chunk;
    to.is_first = false;
    return true;
  }

  __device__ void fetch(part& of) const {
    const dequant_task& task = units_.task(of.unit);
    if (task.path != dequant_task::wide_one_scale) return;
    const auto fetch_vector = [&](int i, const std::byte* from, std::uint32_t row, std::uint32_t col) {
      of.codes[i] = load_codes<wide>(from);
      of.scales[i] = __ldg(reinterpret_cast<const scale_bits*>(scale_of(task, row, col)));
    };
    for_each_vector<wide, loads>(of.unit, of.first, task.source, task.source_row_stride_bytes, 1, fetch_vector);
    if (of.is_first) of.left_over = fetch_left_over(task, of.unit);
  }

  /// Requires: a barrier since `fetch`
  __device__ void store(const part& of) const {
    const dequant_task& task = units_.task(of.unit);
    if (task.path == dequant_task::wide) return convert_unit<wide>(of.unit);
    if (task.path == dequant_task::single) return convert_unit<1>(of.unit);
    const auto store_vector = [&](int i, std::byte* to, std::uint32_t, std::uint32_t) {
      float each[wide];
#pragma unroll
      for (int e = 0; e < wide; ++e) each[e] = codec<Scale>::decode(static_cast<scale_bits>(of.scales[i]));
      __builtin_assume(__isGlobal(to));
      *reinterpret_cast<uint4*>(to) = convert_vector<Stored, Runtime>(of.codes[i], each);
    };
    for_each_vector<wide, loads>(of.unit, of.first, task.destination, task.destination_row_stride_bytes,
                                 sizeof(code_of<Runtime>), store_vector);
    if (of.is_first) store_left_over(task, of.unit, of.left_over);
  }

 private:
  /// The last multiple of `step` below `count`; 0 where there is none.
  __device__ static std::uint32_t last_multiple(std::uint32_t count, std::uint32_t step) {
    return count == 0 ? 0 : (count - 1) / step * step;
  }
  __device__ std::uint32_t first_row(const dequant_task& task, std::uint32_t unit) const {
    return units_.index(unit) * task.unit_rows;
  }
  __device__ std::uint32_t rows_of(const dequant_task& task, std::uint32_t unit) const {
    return min(task.unit_rows, task.rows - first_row(task, unit));
  }

  /// Calls `visit(number, address, row, col)` for this thread's vectors of a chunk; `rows` is row 0 of the source or of the
  /// destination, whose elements take `element` bytes. Offsets in the unit step on, in 32 bits: multiplications would cost
  /// more than the conversion.
  template <int Width, int Vectors, class Byte, class Visit>
  __device__ void for_each_vector(std::uint32_t unit, std::uint32_t first, Byte* rows, std::int64_t row_stride_bytes,
                                  int element, Visit&& visit) const {
    const dequant_task& task = units_.task(unit);
    const std::uint32_t vectors = task.vectors;
    const std::uint32_t count = vectors * rows_of(task, unit);
    const std::uint32_t step_rows = task.by_vectors.divide(threads);
    const std::uint32_t step = threads - step_rows * vectors;
    const int stride = static_cast<int>(row_stride_bytes), vector_bytes = Width * element;
    const int step_bytes = static_cast<int>(step_rows) * stride + static_cast<int>(step) * vector_bytes;
    const int wrap_bytes = stride - static_cast<int>(vectors) * vector_bytes;
    Byte* begin = rows + first_row(task, unit) * row_stride_bytes;
    std::uint32_t at = first + threadIdx.x;
    std::uint32_t row = task.by_vectors.divide(at);
    std::uint32_t vector = at - row * vectors;
    int offset = static_cast<int>(row) * stride + static_cast<int>(vector) * vector_bytes;
    row += first_row(task, unit);
#pragma unroll
    for (int i = 0; i < Vectors; ++i) {
      if (at < count) visit(i, begin + offset, row, vector * Width);
      at += threads;
      row += step_rows;
      vector += step;
      offset += step_bytes;
      if (vector >= vectors) {
        vector -= vectors;
        ++row;
        offset += wrap_bytes;
      }
    }
  }

  /// Converts a unit: a vector a thread at a time, a scale an element.
  template <int Width>
  __device__ void convert_unit(std::uint32_t unit) const {
    const dequant_task& task = units_.task(unit);
    std::uint8_t left_over = Width == 1 ? std::uint8_t{0} : fetch_left_over(task, unit);
    for (std::uint32_t first = last_multiple(task.vectors * rows_of(task, unit), threads);; first -= threads) {
      uint2 codes = {};
      for_each_vector<Width, 1>(unit, first, task.source, task.source_row_stride_bytes, 1,
                                [&](int, const std::byte* from, std::uint32_t, std::uint32_t) {
                                  codes = load_codes<Width>(from);
                                });
      __syncthreads();
      const auto store_vector = [&](int, std::byte* to, std::uint32_t row, std::uint32_t col) {
        if constexpr (Width == 1) {
          store_one(task, row, col, static_cast<std::uint8_t>(codes.x));
        } else {
          float each[Width];
#pragma unroll
          for (int e = 0; e < Width; ++e)
            each[e] = codec<Scale>::decode(__ldg(reinterpret_cast<const scale_bits*>(scale_of(task, row, col + e))));
          __builtin_assume(__isGlobal(to));
          *reinterpret_cast<uint4*>(to) = convert_vector<Stored, Runtime>(codes, each);
        }
      };
      for_each_vector<Width, 1>(unit, first, task.destination, task.destination_row_stride_bytes,
                                sizeof(code_of<Runtime>), store_vector);
      if (first == 0) break;
    }
    if (Width != 1) store_left_over(task, unit, left_over);
  }

  /// `Width` codes, the first in the lowest byte.
  template <int Width>
  __device__ static uint2 load_codes(const std::byte* from) {
    __builtin_assume(__isGlobal(from));
    if constexpr (Width == 8)
      return *reinterpret_cast<const uint2*>(from);
    else if constexpr (Width == 4)
      return {*reinterpret_cast<const std::uint32_t*>(from), 0};
    else
      return {static_cast<std::uint8_t>(*from), 0};
  }

  /// Calls `visit(row, col)` where this thread has one of the columns left over in a unit.
  template <class Visit>
  __device__ void at_left_over(const dequant_task& task, std::uint32_t unit, Visit&& visit) const {
    const std::uint32_t begin = task.vectors * wide, cols = task.cols - begin;
    if (threadIdx.x < cols * rows_of(task, unit))
      visit(first_row(task, unit) + threadIdx.x / cols, begin + threadIdx.x % cols);
  }
  __device__ std::uint8_t fetch_left_over(const dequant_task& task, std::uint32_t unit) const {
    std::uint8_t code = 0;
    at_left_over(task, unit, [&](std::uint32_t row, std::uint32_t col) {
      code = static_cast<std::uint8_t>(task.source[row * task.source_row_stride_bytes + col]);
    });
    return code;
  }
  __device__ void store_left_over(const dequant_task& task, std::uint32_t unit, std::uint8_t code) const {
    at_left_over(task, unit, [&](std::uint32_t row, std::uint32_t col) { store_one(task, row, col, code); });
  }

  __device__ void store_one(const dequant_task& task, std::uint32_t row, std::uint32_t col, std::uint8_t code) const {
    std::byte* to = task.destination + row * task.destination_row_stride_bytes +
                    col * std::int64_t{sizeof(code_of<Runtime>)};
    store_any(to, dequantise<Stored, Runtime, Scale>(code, load_any<scale_bits>(scale_of(task, row, col))));
  }
  __device__ const std::byte* scale_of(const dequant_task& task, std::uint32_t row, std::uint32_t col) const {
    return task.scale + blocks_.rows.divide(task.row_phase + row) * task.scale_row_stride_bytes +
           blocks_.cols.divide(task.col_phase + col) * std::int64_t{sizeof(scale_bits)};
  }

  const block_units<dequant_task>& units_;
  const dequant_blocks& blocks_;
};

/// Dequantises the tasks of one key, one block a unit.
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
    dequant_rows(const __grid_constant__ work<dequant_task> todo, const __grid_constant__ dequant_blocks blocks) {
  __shared__ block_units<dequant_task> units;
  if (enter(todo.gate)) {
    const bool deals = threadIdx.x < 32;
    block_dealer<dequant_task> dealer(todo, units);
    units.index_tasks(todo);
    __syncthreads();
    if (deals)
      for (std::uint32_t k = 0; k < dealer.uncounted; ++k) dealer.deal(k);
    __syncthreads();
    using work_on = dequantiser<Stored, Runtime, Scale>;
    const work_on block(units, blocks);
    typename work_on::part now, next;
    bool more = units.index(0) != units.none;
    if (more) {
      block.begin(now, 0);
      block.fetch(now);
    }
    while (more) {
      const bool in_unit = work_on::advance(next, now);
      if (!in_unit) {
        more = units.index(now.unit + 1) != units.none;
        if (more) block.begin(next, now.unit + 1);
      }
      if (more) block.fetch(next);
      __syncthreads();  // all of `now` is read
      if (!in_unit && deals) dealer.deal(now.unit + 3);  // to the slot that was stored from before the last barrier
      block.store(now);
      now = next;
    }
  }
  leave(todo.gate);
}

}  // namespace kernel
}  // namespace wreload
