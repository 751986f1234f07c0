#pragma once
/// Plain records that executors and kernels read: no names, no layouts, only addresses, extents and dtypes.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "dtype.hpp"
#include "shape.hpp"
#include "tensor_ref.hpp"

namespace wreload {

/// Index of a `storage_map` in the table that an executor got at `reserve`; `unmapped`: row-major.
using map_index = std::int32_t;
inline constexpr map_index unmapped = -1;

/// Copies one rectangle into runtime storage, widening where the dtypes differ (never rounding).
///
///   source       (rows, cols) elements of `from`, strides in bytes, any alignment, either stride may be any value
///   destination  no map: (rows, cols) elements of `to`, columns contiguous
///                map:    first byte of a slot; the rectangle starts at (map_row, map_col) of its matrix form. Never an
///                        MN-major one: such a landing is a job without a map, rows and columns exchanged
struct land_job {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t source_row_stride_bytes = 0;
  std::int64_t source_col_stride_bytes = 0;
  std::int64_t destination_row_stride_bytes = 0;
  dtype from = dtype::none;
  dtype to = dtype::none;
  memory_kind memory = memory_kind::pageable;  ///< where `source` lies
  map_index map = unmapped;
  std::int64_t map_row = 0;
  std::int64_t map_col = 0;
};

/// What selects a conversion kernel: dtypes and block size, never a name.
struct dequant_key {
  dtype stored = dtype::none;   ///< fp8_e4m3 or fp8_e5m2
  dtype runtime = dtype::none;  ///< bf16, fp16 or fp32
  dtype scale = dtype::none;    ///< fp32, bf16 or fp8_ue8m0
  std::int32_t block_rows = 0;  ///< rows of one scale block; 0: one block takes all rows
  std::int32_t block_cols = 0;  ///< columns of one scale block; 0: one block takes all columns
  friend constexpr bool operator==(const dequant_key&, const dequant_key&) = default;
};

/// Dequantises rows: `runtime(w) = rne(fp32(q) * fp32(s))`. In place is the case `destination == source` with equal
/// row strides; then row i of `source` is read whole before row i of `destination` is written.
///
///   source       (rows, cols) stored elements, columns contiguous
///   destination  (rows, cols) runtime elements, columns contiguous
///   scale        element (r, c) uses block ((row_phase + r) / block_rows, (col_phase + c) / block_cols)
struct dequant_job {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  const std::byte* scale = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t source_row_stride_bytes = 0;
  std::int64_t destination_row_stride_bytes = 0;
  std::int64_t scale_row_stride_bytes = 0;
  std::int32_t row_phase = 0;
  std::int32_t col_phase = 0;
};

/// Sets every byte of a rectangle to one value (pads).
struct fill_job {
  std::byte* destination = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t row_stride_bytes = 0;
  std::byte value = {};
};

/// A rectangle of a tensor to digest, tile by tile of the *global* tensor, so that what is cut over ranks adds up (see
/// numerics/digest.hpp). It touches `digest_tiles_of(job)` tiles, which are numbered row by row.
///
///   data      (rows, cols) elements of `element_bytes`, any alignment
///   row, col  of element (0, 0) in the matrix form of the global tensor
struct digest_job {
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride_bytes = 0;
  std::int64_t col_stride_bytes = 0;  ///< 0: columns are contiguous (always so with a map)
  std::int64_t row = 0;
  std::int64_t col = 0;
  std::int32_t element_bytes = 0;
  map_index map = unmapped;  ///< else `data` is a slot and the rectangle starts at (map_row, map_col) of its matrix form
  std::int64_t map_row = 0;
  std::int64_t map_col = 0;
};

/// Where the digests of what a `land_job` lands are added up.
///
///   sums           one per tile of a grid, in the executor's memory; row by row
///   tiles_across   tiles in a row of the grid
///   tile_row, _col which tile of the global tensor `sums[0]` is
///   row, col       of the job's first element in the matrix form of the global tensor
struct land_digest {
  std::uint64_t* sums = nullptr;
  std::int64_t tiles_across = 0;
  std::int64_t tile_row = 0;
  std::int64_t tile_col = 0;
  std::int64_t row = 0;
  std::int64_t col = 0;
  bool is_transposed = false;  ///< the job's rows are the tensor's columns
};

/// One factor of a `combine_job`; see there.
struct combine_factor {
  const std::byte* first = nullptr;    ///< fp32
  std::int64_t stride_bytes = 0;       ///< from one result to the next
  std::int64_t count = 1;              ///< values under the maximum
  std::int64_t across_bytes = 0;       ///< from one of them to the next
  bool inverted = false;               ///< each value, before the maximum
};

/// Computes fp32 scalars: result i is the product, from left to right, of max over each factor's values at i; or its
/// reciprocal. NaN wins a maximum. Rounded to nearest at each step.
struct combine_job {
  std::byte* results = nullptr;  ///< `count` fp32
  std::int64_t count = 0;
  combine_factor factors[3] = {};
  std::int32_t factor_count = 0;
  bool inverted = false;
};

/// Two runtime tensors to compare byte for byte (audit).
struct difference_job {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t a_row_stride_bytes = 0;
  std::int64_t b_row_stride_bytes = 0;
};

static_assert(std::is_trivially_copyable_v<land_job> && std::is_trivially_copyable_v<dequant_job>);
static_assert(std::is_trivially_copyable_v<digest_job> && std::is_trivially_copyable_v<land_digest>);
static_assert(std::is_trivially_copyable_v<difference_job> && std::is_trivially_copyable_v<combine_job>);

}  // namespace wreload
