#pragma once
/// Launch choices of kernel/digest_tiles.cuh.

namespace wreload::tuning {

/// A warp takes a unit at a time, a lane 16 bytes of each of its rows. At the rate of the memory the multiplications take
/// less than half of the integer units (see bench/NOTES.md).
///
///   strip_bytes     of a unit's row: 32 lanes of 16 bytes
///   unit_rows       a divisor of a tile's rows; more: fewer look-ups of weights, but a longer tail
///   narrow_bytes    rows of at most this many bytes: a unit is all rows of a tile
///   loads_per_lane  independent 16-byte loads before their first use; a power of two
struct digest_tiles {
  static constexpr int block_threads = 256;
  static constexpr int units_per_block = block_threads / 32;
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int strip_bytes = 512;
  static constexpr int unit_rows = 64;
  static constexpr int narrow_bytes = 64;
  static constexpr int loads_per_lane = 8;
};

}  // namespace wreload::tuning
