#pragma once
/// Launch choices of kernel/dequant_rows.cuh.

namespace wreload::tuning {

/// Chosen for sm_90, where reads need some 10 KB in flight per multiprocessor; used for every architecture. 24 warps: with
/// more, registers spill.
///
///   loads_per_lane   independent loads of a lane before its first store; one more set is fetched ahead
///   unit_elements    rows shorter than this are taken several at a time, so that finding a task costs little
struct dequant_rows {
  static constexpr int block_threads = 128;
  static constexpr int units_per_block = block_threads / 32;  // a warp each
  static constexpr int blocks_per_multiprocessor = 6;
  static constexpr int loads_per_lane = 4;
  static constexpr int unit_elements = 8192;
  static constexpr int most_unit_rows = 64;
  static constexpr int bytes_per_store = 16;
};

}  // namespace wreload::tuning
