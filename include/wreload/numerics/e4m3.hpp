#pragma once
/// FP8 E4M3, the "fn" variant of checkpoints and of NVIDIA GPUs.

#include "codec.hpp"

namespace wreload {

/// 1-4-3, bias 7; no infinity; 0x7F and 0xFF are NaN; largest 448, smallest 2^-9. Not the "fnuz" variant of ROCm.
///
/// Meaning:   decode gives fp32 0x7FFFFFFF for both NaNs and keeps -0; encode rounds to nearest even and saturates to
///            +-448 (infinities too), NaN gives 0x7F
/// Source:    cvt.rn.satfinite.e4m3x2.f32
template <>
struct codec<fp8_e4m3> {
  using bits = std::uint8_t;

  WRELOAD_HOST_DEVICE static constexpr float decode(bits code) {
    const std::uint32_t magnitude = code & 0x7FU;
    const std::uint32_t sign = (code & 0x80U) << 24;
    const std::uint32_t finite = detail::widen_magnitude<3, 7>(magnitude) | sign;
    return fp32_from_bits(detail::select(magnitude == 0x7FU, fp32_nan_bits, finite));
  }

  WRELOAD_HOST_DEVICE static constexpr bits encode(float value) {
    const std::uint32_t pattern = fp32_bits(value);
    const std::uint32_t magnitude = detail::narrow_magnitude<3, 7>(pattern & 0x7FFFFFFFU);
    const std::uint32_t clamped = magnitude > 0x7EU ? 0x7EU : magnitude;
    const std::uint32_t signed_code = clamped | ((pattern >> 24) & 0x80U);
    return static_cast<bits>(detail::select(is_nan_bits(pattern), 0x7FU, signed_code));
  }
};

static_assert(encodable_format<fp8_e4m3>);

}  // namespace wreload
