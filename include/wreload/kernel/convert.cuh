#pragma once
/// The one arithmetic in hardware instructions: packed FP8 codes times a scale, to packed runtime elements.

#include <cstdint>

#include "../numerics/dequant.hpp"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

/// Two FP8 codes (the first in the low byte) as fp32, exactly. Every FP8 value is an fp16 value; NaN stays some NaN.
template <class Stored>
__device__ float2 decode_pair(std::uint32_t codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t halves = 0;
  const auto packed = static_cast<std::uint16_t>(codes);
  if constexpr (Stored::id == dtype::fp8_e4m3)
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(packed));
  else
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(packed));
  float2 values;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
      : "=f"(values.x), "=f"(values.y)
      : "r"(halves));
  return values;
#else
  return {codec<Stored>::decode(static_cast<std::uint8_t>(codes)),
          codec<Stored>::decode(static_cast<std::uint8_t>(codes >> 8))};
#endif
}

/// Two fp32 values as packed bf16 or fp16, each rounded to nearest even; a NaN gives 0x7FFF.
template <class Runtime>
__device__ std::uint32_t encode_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t packed = 0;
  if constexpr (Runtime::id == dtype::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
#else
  return codec<Runtime>::encode(first) | static_cast<std::uint32_t>(codec<Runtime>::encode(second)) << 16;
#endif
}

/// 16 bytes of runtime elements from the stored codes in `codes` (8 of them, or 4 for fp32; the first in the lowest
/// byte) and one scale for each.
///
/// Meaning:   the bits of `dequantise` for every element, under any compiler flag: all arithmetic is inline PTX
template <class Stored, class Runtime>
__device__ uint4 convert_vector(uint2 codes, const float* scales) {
  std::uint32_t words[4];
  if constexpr (Runtime::id == dtype::fp32) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const float2 values = decode_pair<Stored>(codes.x >> (16 * pair));
      words[2 * pair] = fp32_bits(dequant_product(values.x, scales[2 * pair]));  // mul.rn makes every NaN 0x7FFFFFFF
      words[2 * pair + 1] = fp32_bits(dequant_product(values.y, scales[2 * pair + 1]));
    }
  } else {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 values = decode_pair<Stored>((pair < 2 ? codes.x : codes.y) >> (16 * (pair % 2)));
      words[pair] = encode_pair<Runtime>(dequant_product(values.x, scales[2 * pair]),
                                         dequant_product(values.y, scales[2 * pair + 1]));
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace kernel
}  // namespace wreload
