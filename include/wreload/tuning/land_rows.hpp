#pragma once
/// Launch choices of kernel/land_rows.cuh.

namespace wreload::tuning {

/// Chosen for sm_90; used for every architecture.
///
///   segment_bytes     a warp copies a run of at most this many bytes at a time
///   segment_elements  the same for runs that are read element by element
///   loads_per_lane    independent 16-byte loads of a lane before its first store
struct land_rows {
  static constexpr int block_threads = 128;
  static constexpr int units_per_block = block_threads / 32;  // a warp each
  static constexpr int blocks_per_multiprocessor = 6;
  static constexpr int segment_bytes = 16384;
  static constexpr int segment_elements = 4096;
  static constexpr int most_unit_rows = 64;
  static constexpr int loads_per_lane = 4;
};

}  // namespace wreload::tuning
