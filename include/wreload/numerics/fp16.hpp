#pragma once
/// FP16: IEEE binary16.

#include "codec.hpp"

namespace wreload {

/// 1-5-10, bias 15, IEEE; subnormals down to 2^-24, largest finite 65504.
///
/// Meaning:   decode gives fp32 0x7FFFFFFF for every NaN; encode rounds to nearest even, overflows to infinity (from
///            65520 on), keeps -0 and subnormals, and gives 0x7FFF for every NaN
/// Source:    cvt.rn.f16.f32
template <>
struct codec<fp16> {
  using bits = std::uint16_t;

  WRELOAD_HOST_DEVICE static constexpr float decode(bits code) {
    const std::uint32_t magnitude = code & 0x7FFFU;
    const std::uint32_t sign = (code & 0x8000U) << 16;
    const std::uint32_t finite = detail::widen_magnitude<10, 15>(magnitude) | sign;
    const std::uint32_t not_finite = detail::select(magnitude == 0x7C00U, 0x7F800000U | sign, fp32_nan_bits);
    return fp32_from_bits(detail::select(magnitude < 0x7C00U, finite, not_finite));
  }

  WRELOAD_HOST_DEVICE static constexpr bits encode(float value) {
    const std::uint32_t pattern = fp32_bits(value);
    const std::uint32_t magnitude = detail::narrow_magnitude<10, 15>(pattern & 0x7FFFFFFFU);
    const std::uint32_t clamped = magnitude > 0x7C00U ? 0x7C00U : magnitude;
    const std::uint32_t signed_code = clamped | ((pattern >> 16) & 0x8000U);
    return static_cast<bits>(detail::select(is_nan_bits(pattern), 0x7FFFU, signed_code));
  }
};

static_assert(encodable_format<fp16>);

}  // namespace wreload
