#pragma once
/// `block_divisor`: exact division by a number that is known at launch.

#include <cuda_runtime.h>

#include <cstdint>

#include "../core/config.hpp"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// Division by a number known at launch, without a division: n / divisor for n < 2^31 in three instructions, exactly
/// (Granlund and Montgomery). Divisor 0 stands for "one block takes all": every quotient is 0. So block sizes need no
/// kernels of their own.
struct block_divisor {
  std::uint32_t multiplier = 0;
  std::uint32_t shift = 31;

  block_divisor() = default;
  explicit block_divisor(std::uint32_t divisor) {
    if (divisor == 0) return;
    shift = 0;
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    const std::uint64_t excess = (std::uint64_t{1} << shift) - divisor;
    multiplier = static_cast<std::uint32_t>((excess << 32) / divisor + 1);
  }
  __device__ std::uint32_t divide(std::uint32_t n) const { return (__umulhi(multiplier, n) + n) >> shift; }
};

}  // namespace kernel
}  // namespace wreload
