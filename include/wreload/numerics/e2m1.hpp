#pragma once
/// FP4 E2M1, stored two a byte.

#include "codec.hpp"

namespace wreload {

/// 1-2-1, bias 1: {0, .5, 1, 1.5, 2, 3, 4, 6} and their negatives; no infinity, no NaN.
///
/// Here a code is one nibble: decode reads bits 0-3 and ignores the others, encode leaves bits 4-7 zero. A *stored*
/// element of `fp4_e2m1x2` is a byte of two codes: see `unpack_e2m1` and `pack_e2m1`.
///
/// Meaning:   encode rounds to nearest even and saturates to +-6; keeps -0 (0x8); NaN gives +6 (0x7), as hardware does
/// Source:    cvt.rn.satfinite.e2m1x2.f32; formats.md 2.1
template <>
struct codec<fp4_e2m1x2> {
  using bits = std::uint8_t;

  WRELOAD_HOST_DEVICE static constexpr float decode(bits code) {
    return fp32_from_bits(detail::widen_magnitude<1, 1>(code & 0x7U) | ((code & 0x8U) << 28));
  }

  WRELOAD_HOST_DEVICE static constexpr bits encode(float value) {
    const std::uint32_t pattern = fp32_bits(value);
    const std::uint32_t magnitude = detail::narrow_magnitude<1, 1>(pattern & 0x7FFFFFFFU);
    const std::uint32_t clamped = magnitude > 0x7U ? 0x7U : magnitude;
    const std::uint32_t signed_code = clamped | ((pattern >> 28) & 0x8U);
    return static_cast<bits>(detail::select(is_nan_bits(pattern), 0x7U, signed_code));
  }
};

static_assert(encodable_format<fp4_e2m1x2>);

/// Code of value `2 * byte_index + which` of a packed row: `which` 0 is the low nibble, 1 the high one.
WRELOAD_HOST_DEVICE constexpr std::uint8_t unpack_e2m1(std::uint8_t packed, int which) {
  return static_cast<std::uint8_t>((packed >> (4 * (which & 1))) & 0xFU);
}

/// The byte of two codes: `even` (value 2j) in the low nibble, `odd` (value 2j + 1) in the high one.
WRELOAD_HOST_DEVICE constexpr std::uint8_t pack_e2m1(std::uint8_t even, std::uint8_t odd) {
  return static_cast<std::uint8_t>((even & 0xFU) | ((odd & 0xFU) << 4));
}

}  // namespace wreload
