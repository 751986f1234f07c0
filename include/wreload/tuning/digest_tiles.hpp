#pragma once
/// Launch choices of kernel/digest_tiles.cuh.

namespace wreload::tuning {

/// One block takes a tile at a time. Three 64-bit multiplies an element: bound by arithmetic for one-byte elements.
struct digest_tiles {
  static constexpr int block_threads = 256;
  static constexpr int units_per_block = 1;
  static constexpr int blocks_per_multiprocessor = 4;
};

}  // namespace wreload::tuning
