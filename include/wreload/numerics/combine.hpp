#pragma once
/// FP32 arithmetic on scalars: products, maxima and reciprocals, the same bits on host and device under any flags.

#include <cstdint>

#include "dequant.hpp"
#include "fp32.hpp"

namespace wreload {

namespace detail {
/// Integers in the order of the values, -0 below +0: a float comparison flushes subnormals under -use_fast_math.
WRELOAD_HOST_DEVICE constexpr std::uint32_t order_of(float value) {
  const std::uint32_t bits = fp32_bits(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
}  // namespace detail

/// The greater of two values, +0 above -0, so that the order of many does not matter; NaN wins, as the one NaN of
/// `codec<fp32>`.
WRELOAD_HOST_DEVICE constexpr float maximum(float a, float b) {
  if (is_nan_bits(fp32_bits(a)) || is_nan_bits(fp32_bits(b))) return fp32_from_bits(fp32_nan_bits);
  return detail::order_of(a) < detail::order_of(b) ? b : a;
}

/// 1 / x, rounded once to nearest even, subnormals kept; 1 / 0 is infinity. Device: PTX `div.rn.f32`, which no flag
/// rewrites.
WRELOAD_HOST_DEVICE constexpr float reciprocal(float value) {
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) {
    float result = 0;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(1.0F), "f"(value));
    return result;
  }
#endif
  return 1.0F / value;
}

}  // namespace wreload
