#pragma once
/// UE8M0: a power of two in one byte (MX and DeepGEMM scales).

#include "codec.hpp"

namespace wreload {

/// 2^(byte - 127), unsigned; byte 255 is NaN; there is no zero: byte 0 is 2^-127.
///
/// decode is exact for every byte. The shortcut `byte << 23` that engines use is not: it gives 0 for byte 0 and
/// infinity for byte 255.
///
/// encode gives the smallest power of two that is not below |value| (a scale never makes its block overflow):
///   zero and everything up to 2^-127   -> 0     (DeepGEMM clamps to 1; it never gets here, its scales are >= 1e-4/448)
///   above 2^127, infinity              -> 254   (saturates: here the result *is* below the value)
///   NaN                                -> 255
///   a negative value                   as its magnitude
///
/// Source:    formats.md 2.4, 2.6; cvt.rp.satfinite.ue8m0x2.f32
template <>
struct codec<fp8_ue8m0> {
  using bits = std::uint8_t;

  WRELOAD_HOST_DEVICE static constexpr float decode(bits code) {
    if (code == 0) return fp32_from_bits(0x00400000U);  // 2^-127 is subnormal in fp32
    return fp32_from_bits(code == 255 ? fp32_nan_bits : static_cast<std::uint32_t>(code) << 23);
  }

  WRELOAD_HOST_DEVICE static constexpr bits encode(float value) {
    const std::uint32_t magnitude = fp32_bits(value) & 0x7FFFFFFFU;
    if (is_nan_bits(magnitude)) return 255;
    if (magnitude <= 0x00400000U) return 0;
    const std::uint32_t rounded_up = (magnitude + 0x007FFFFFU) >> 23;  // the exponent, plus one beyond a power of two
    return static_cast<bits>(rounded_up > 254U ? 254U : rounded_up);
  }
};

static_assert(encodable_format<fp8_ue8m0>);

}  // namespace wreload
