#pragma once
/// Whether the host computes as IEEE says: asked once, at `seal()`.

#include <cstdint>

#include "codec.hpp"

namespace wreload {

/// Whether fp32 arithmetic of the *calling thread* flushes subnormal results (FTZ) or reads subnormal operands as zero
/// (DAZ). Linking with -ffast-math or -Ofast sets both for the whole process; a library may set them for its threads.
inline bool flushes_subnormals() {
  const volatile float smallest_normal = fp32_from_bits(0x00800000U);
  const volatile float one_half = 0.5F;
  const volatile float smallest_subnormal = fp32_from_bits(0x00000001U);
  const volatile float two_to_24 = 16777216.0F;
  const volatile float halved = smallest_normal * one_half;          // 2^-127; zero under FTZ
  const volatile float normalised = smallest_subnormal * two_to_24;  // 2^-125; zero under DAZ
  return fp32_bits(halved) != 0x00400000U || fp32_bits(normalised) != 0x01000000U;
}

/// Whether this code may have been compiled to assume that there are no NaNs (-ffinite-math-only, -ffast-math).
inline bool drops_nan() {
  const volatile float source = fp32_from_bits(fp32_nan_bits);
  const float value = source;
  return WRELOAD_FINITE_MATH_ONLY != 0 || !(value != value);
}

}  // namespace wreload
