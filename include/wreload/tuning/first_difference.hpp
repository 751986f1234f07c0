#pragma once
/// Launch choices of kernel/first_difference.cuh.

namespace wreload::tuning {

struct first_difference {
  static constexpr int block_threads = 256;
  static constexpr int units_per_block = block_threads / 32;  // a warp each
  static constexpr int blocks_per_multiprocessor = 4;
  static constexpr int segment_bytes = 16384;
  static constexpr int most_unit_rows = 64;
};

}  // namespace wreload::tuning
