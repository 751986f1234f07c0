#pragma once
/// The reference of the benchmarks' checks.

#include <cuda_runtime.h>

#include <cstdint>

namespace bench {
namespace {

/// One element at a time, from the definition of e4m3; shares nothing with the library.
__device__ std::uint16_t plain_dequant(std::uint8_t code, float scale) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return 0x7FFF;
  float value = exponent == 0 ? ldexpf(static_cast<float>(mantissa), -9) : ldexpf(8.0F + static_cast<float>(mantissa), exponent - 10);
  if (code & 0x80) value = -value;
  const std::uint32_t bits = __float_as_uint(__fmul_rn(value, scale));
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

}  // namespace
}  // namespace bench
