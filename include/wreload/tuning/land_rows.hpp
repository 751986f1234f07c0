#pragma once
/// Launch choices of kernel/land_rows.cuh.

namespace wreload::tuning {

/// Chosen for sm_90; used for every architecture.
///
///   segment_bytes     a warp copies a run of at most this many bytes at a time
///   segment_elements  the same for runs that are read element by element
///   most_unit_rows    that a warp takes at a time, one after the other
///   most_alike_rows   the same for rows that are put together
///   loads_per_lane    independent 16-byte loads of a lane before its first store. With as many, 12 warps a multiprocessor
///                     are enough, and best: what is read at one time lies close together in memory
///
/// Where the storage is swizzled (terms: `swizzled_unit`):
///
///   swizzle_unit_cols        a warp lands at most this many columns of 128 rows at a time; a multiple of 16
///   swizzle_slices_per_lane  4 independent 16-byte loads each before the first store
///   swizzle_lanes_across     1, 2 or 4 neighbouring lanes read one row, 16 bytes each; a quarter of the warp then stores
///                            128, 64 or 32 contiguous bytes
struct land_rows {
  static constexpr int block_threads = 128;
  static constexpr int units_per_block = block_threads / 32;  // a warp each
  static constexpr int blocks_per_multiprocessor = 3;
  static constexpr int segment_bytes = 16384;
  static constexpr int segment_elements = 4096;
  static constexpr int most_unit_rows = 64;
  static constexpr int most_alike_rows = 1024;
  static constexpr int loads_per_lane = 6;
  static constexpr int swizzle_unit_cols = 128;
  static constexpr int swizzle_slices_per_lane = 2;
  static constexpr int swizzle_lanes_across = 4;
};

}  // namespace wreload::tuning
