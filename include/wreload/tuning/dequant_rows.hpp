#pragma once
/// Launch choices of kernel/dequant_rows.cuh.

namespace wreload::tuning {

/// Chosen for sm_90; used for every architecture. One block a multiprocessor: what is read and written at one time then
/// lies close together in memory, which counts for more than warps to choose from.
///
///   loads_per_thread     independent loads of a thread before its first store; one more set is fetched ahead
///   most_unit_elements,  a unit is as many whole rows as hold the first; fewer, down to the second, where a launch has so
///   least_unit_elements  little to do that some multiprocessors would get none
///   balance_units        a launch has at least as many for each block, before units get smaller
///   most_unit_rows       times 7 columns: the left-over columns of a unit, at most one a thread
struct dequant_rows {
  static constexpr int block_threads = 1024;
  static constexpr int units_per_block = 1;  // at a time
  static constexpr int blocks_per_multiprocessor = 1;
  static constexpr int loads_per_thread = 4;
  static constexpr int most_unit_elements = 65536;
  static constexpr int least_unit_elements = 8192;
  static constexpr int balance_units = 8;
  static constexpr int most_unit_rows = 128;
  static constexpr int bytes_per_store = 16;
};

}  // namespace wreload::tuning
