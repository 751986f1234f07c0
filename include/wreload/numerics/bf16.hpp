#pragma once
/// BF16: the upper half of an fp32.

#include "codec.hpp"

namespace wreload {

/// 1-8-7, bias 127, IEEE-like.
///
/// Meaning:   decode is a shift and keeps NaN payloads ("widened exactly"); encode rounds to nearest even, overflows
///            to infinity, keeps -0 and subnormals, and gives 0x7FFF for every NaN
/// Source:    cvt.rn.bf16.f32
template <>
struct codec<bf16> {
  using bits = std::uint16_t;

  WRELOAD_HOST_DEVICE static constexpr float decode(bits code) {
    return fp32_from_bits(static_cast<std::uint32_t>(code) << 16);
  }

  WRELOAD_HOST_DEVICE static constexpr bits encode(float value) {
    const std::uint32_t pattern = fp32_bits(value);
    const std::uint32_t rounded = (pattern + 0x7FFFU + ((pattern >> 16) & 1U)) >> 16;
    return static_cast<bits>(detail::select(is_nan_bits(pattern), 0x7FFFU, rounded));
  }
};

static_assert(encodable_format<bf16>);

}  // namespace wreload
