#pragma once
/// The plain reference for numerics: what each format's codes mean, straight from the definition, in double.
///
/// Written to be obviously right and to share nothing with the library: values come from `std::ldexp`, rounding from
/// a search among the neighbouring codes. Slow on purpose.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <wreload/core/dtype.hpp>

namespace reference {

using wreload::dtype;

/// A sign-magnitude format: sign, exponent, mantissa from the top bit down.
struct float_layout {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  std::uint32_t largest_finite;  ///< sign-less code
  std::uint32_t infinity;        ///< sign-less code; 0: the format has none and rounding saturates
  std::uint32_t nan;             ///< what a NaN rounds to

  int sign_shift() const { return exponent_bits + mantissa_bits; }
  std::uint32_t magnitude_mask() const { return (std::uint32_t{1} << sign_shift()) - 1; }
};

inline float_layout layout_of(dtype type) {
  switch (type) {
    case dtype::fp32: return {8, 23, 127, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF};
    case dtype::bf16: return {8, 7, 127, 0x7F7F, 0x7F80, 0x7FFF};
    case dtype::fp16: return {5, 10, 15, 0x7BFF, 0x7C00, 0x7FFF};
    case dtype::fp8_e4m3: return {4, 3, 7, 0x7E, 0, 0x7F};
    case dtype::fp8_e5m2: return {5, 2, 15, 0x7B, 0, 0x7F};  // as a target: saturating. decode() knows its infinity
    case dtype::fp4_e2m1x2: return {2, 1, 1, 0x7, 0, 0x7};   // one nibble; a NaN rounds to +6
    default: return {};
  }
}

/// Value of a sign-less code, every exponent taken as finite.
inline double magnitude_value(const float_layout& layout, std::uint32_t magnitude) {
  const int exponent = static_cast<int>(magnitude >> layout.mantissa_bits);
  const double mantissa = magnitude & ((std::uint32_t{1} << layout.mantissa_bits) - 1);
  const double fraction = std::ldexp(mantissa, -layout.mantissa_bits);
  if (exponent == 0) return std::ldexp(fraction, 1 - layout.bias);
  return std::ldexp(1.0 + fraction, exponent - layout.bias);
}

/// The value of one code (fp4: of one nibble).
inline double value_of(dtype type, std::uint32_t code) {
  if (type == dtype::fp8_ue8m0) {
    return code == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, static_cast<int>(code) - 127);
  }
  const float_layout layout = layout_of(type);
  const std::uint32_t magnitude = code & layout.magnitude_mask();
  const bool negative = ((code >> layout.sign_shift()) & 1) != 0;
  const std::uint32_t infinity = type == dtype::fp8_e5m2 ? 0x7C : layout.infinity;
  double value = magnitude_value(layout, magnitude);
  if (magnitude > layout.largest_finite) {
    value = infinity != 0 && magnitude == infinity ? std::numeric_limits<double>::infinity()
                                                   : std::numeric_limits<double>::quiet_NaN();
  }
  return negative ? -value : value;
}

/// The value of the element at these bytes (little-endian, any alignment; fp4: of the low nibble).
inline double decode(dtype type, const void* bytes) {
  std::uint32_t code = 0;
  std::memcpy(&code, bytes, static_cast<std::size_t>(wreload::bytes_of(type)));
  return value_of(type, code);
}

/// The code nearest to a value, ties to the even code: looks for the two codes around it and compares with their
/// midpoint. Beyond the midpoint after the largest finite value: infinity, or that value where there is none.
inline std::uint32_t nearest(dtype type, double value) {
  const float_layout layout = layout_of(type);
  if (std::isnan(value)) return layout.nan;
  const std::uint32_t sign = std::signbit(value) ? std::uint32_t{1} << layout.sign_shift() : 0;
  const double magnitude = std::fabs(value);
  std::uint32_t below = 0;  // the largest code whose value is not above the magnitude
  std::uint32_t above = layout.largest_finite + 1;
  while (above - below > 1) {
    const std::uint32_t middle = below + (above - below) / 2;
    (magnitude_value(layout, middle) <= magnitude ? below : above) = middle;
  }
  const double low = magnitude_value(layout, below);
  const double high = magnitude_value(layout, above);  // behind the largest: what the next code would be worth
  const double midpoint = (low + high) / 2;            // exact: two neighbours of at most 24 bits
  const bool up = magnitude > midpoint || (magnitude == midpoint && below % 2 == 1);
  std::uint32_t code = up ? above : below;
  if (code > layout.largest_finite) code = layout.infinity != 0 ? layout.infinity : layout.largest_finite;
  return sign | code;
}

/// The code of the smallest power of two that is not below |value|; see the edge cases in the test.
inline std::uint32_t ceil_ue8m0(double value) {
  if (std::isnan(value)) return 255;
  std::uint32_t code = 0;
  while (code < 254 && value_of(dtype::fp8_ue8m0, code) < std::fabs(value)) ++code;
  return code;
}

/// One dequantised element: the product rounded to fp32, then to the runtime format. The product of a 4-bit and a
/// 24-bit significand is exact in double, so there is exactly one rounding in each step.
inline std::uint32_t dequantise(dtype stored, std::uint32_t code, dtype scale_type, std::uint32_t scale,
                                dtype runtime) {
  const double product = value_of(stored, code) * value_of(scale_type, scale);
  const double as_fp32 = value_of(dtype::fp32, nearest(dtype::fp32, product));
  return nearest(runtime, as_fp32);
}

}  // namespace reference
