#pragma once
/// FP8 E5M2: the upper half of an fp16.

#include "codec.hpp"

namespace wreload {

/// 1-5-2, bias 15, IEEE-like; infinity 0x7C, NaN 0x7D..0x7F; largest finite 57344, smallest 2^-16.
///
/// Meaning:   decode keeps infinities and -0 and gives fp32 0x7FFFFFFF for every NaN; encode rounds to nearest even
///            and saturates to +-57344 (infinities too: no value encodes to one), NaN gives 0x7F
/// Source:    cvt.rn.satfinite.e5m2x2.f32
template <>
struct codec<fp8_e5m2> {
  using bits = std::uint8_t;

  WRELOAD_HOST_DEVICE static constexpr float decode(bits code) {
    const std::uint32_t magnitude = code & 0x7FU;
    const std::uint32_t sign = (code & 0x80U) << 24;
    const std::uint32_t finite = detail::widen_magnitude<2, 15>(magnitude) | sign;
    const std::uint32_t not_finite = detail::select(magnitude == 0x7CU, 0x7F800000U | sign, fp32_nan_bits);
    return fp32_from_bits(detail::select(magnitude < 0x7CU, finite, not_finite));
  }

  WRELOAD_HOST_DEVICE static constexpr bits encode(float value) {
    const std::uint32_t pattern = fp32_bits(value);
    const std::uint32_t magnitude = detail::narrow_magnitude<2, 15>(pattern & 0x7FFFFFFFU);
    const std::uint32_t clamped = magnitude > 0x7BU ? 0x7BU : magnitude;
    const std::uint32_t signed_code = clamped | ((pattern >> 24) & 0x80U);
    return static_cast<bits>(detail::select(is_nan_bits(pattern), 0x7FU, signed_code));
  }
};

static_assert(encodable_format<fp8_e5m2>);

}  // namespace wreload
