#pragma once
/// `combine_scalars`: products, maxima and reciprocals of fp32 scalars (the computed params of quantised layouts).

#include <cstddef>
#include <cstdint>

#include "../core/job.hpp"
#include "../numerics/combine.hpp"
#include "../tuning/combine_scalars.hpp"
#include "work.cuh"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// A `combine_job`; one unit a result.
struct combine_task {
  combine_job job = {};
  std::uint32_t first_unit = 0;
  std::uint32_t unused = 0;

  std::uint64_t units() const { return static_cast<std::uint64_t>(job.count); }
};

inline combine_task make_task(const combine_job& job) { return {job}; }

/// The greatest of a factor's values at a result; every lane gets it. `maximum` does not depend on the order.
__device__ inline float factor_value(const combine_factor& factor, std::int64_t result) {
  const std::byte* first = factor.first + result * factor.stride_bytes;
  const auto value_at = [&](std::int64_t i) {
    const float value = *reinterpret_cast<const float*>(first + i * factor.across_bytes);
    return factor.inverted ? reciprocal(value) : value;
  };
  float greatest = value_at(0);
  for (std::int64_t i = threadIdx.x % 32; i < factor.count; i += 32) greatest = maximum(greatest, value_at(i));
  for (int distance = 16; distance > 0; distance /= 2)
    greatest = maximum(greatest, __shfl_xor_sync(0xFFFFFFFFU, greatest, distance));
  return greatest;
}

/// Combines the tasks' scalars, one warp a result.
///
/// Meaning:   [1 /] max(factor 0) * max(factor 1) * ..., from left to right, each step rounded to nearest; NaN wins a
///            maximum
/// Cost:      one kernel; a few microseconds for all layers of a model
template <int BlockThreads>
__global__ void __launch_bounds__(BlockThreads) combine_scalars(const __grid_constant__ work<combine_task> todo) {
  if (enter(todo.gate))
    for_each_unit<BlockThreads>(todo, [&](const combine_task& task, std::uint32_t unit) {
      float product = factor_value(task.job.factors[0], unit);
      for (int f = 1; f < task.job.factor_count; ++f)
        product = dequant_product(product, factor_value(task.job.factors[f], unit));
      if (task.job.inverted) product = reciprocal(product);
      if (threadIdx.x % 32 == 0)
        reinterpret_cast<std::uint32_t*>(task.job.results)[unit] = codec<fp32>::encode(product);
    });
  leave(todo.gate);
}

}  // namespace kernel
}  // namespace wreload
