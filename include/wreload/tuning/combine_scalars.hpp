#pragma once
/// Launch choices of kernel/combine_scalars.cuh.

namespace wreload::tuning {

struct combine_scalars {
  static constexpr int block_threads = 128;
  static constexpr int units_per_block = block_threads / 32;  // a warp each
  static constexpr int blocks_per_multiprocessor = 2;
};

}  // namespace wreload::tuning
