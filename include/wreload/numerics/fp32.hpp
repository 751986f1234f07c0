#pragma once
/// FP32: the format that all arithmetic is done in.

#include "codec.hpp"

namespace wreload {

/// IEEE binary32. Here so that fp32 can stand wherever a format is asked for.
///
/// Meaning:   decode is the identity; encode only makes every NaN 0x7FFFFFFF, as device arithmetic does
template <>
struct codec<fp32> {
  using bits = std::uint32_t;

  WRELOAD_HOST_DEVICE static constexpr float decode(bits code) { return fp32_from_bits(code); }

  WRELOAD_HOST_DEVICE static constexpr bits encode(float value) {
    const std::uint32_t pattern = fp32_bits(value);
    return detail::select(is_nan_bits(pattern), fp32_nan_bits, pattern);
  }
};

static_assert(encodable_format<fp32>);

}  // namespace wreload
