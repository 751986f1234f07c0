#pragma once
/// What a codec is: the exact meaning of one floating-point format's codes, as static constexpr functions.

#include <concepts>
#include <cstdint>

#include "../core/config.hpp"
#include "../core/dtype.hpp"

namespace wreload {

/// Decodes and encodes the codes of one format. Primary template: a format without a specialisation has no codec
/// (integers, fp64); the specialisations are one file each (`numerics/bf16.hpp`, `numerics/e4m3.hpp`, …).
///
///   bits           unsigned integer that holds one code
///   decode(bits)   the value as fp32; exact for every format here
///   encode(float)  the nearest code, ties to even (fp8_ue8m0: the next power of two); NaN becomes one fixed code
///
/// Meaning:   integer arithmetic on bit patterns only; no libm, no rounding mode, no flush to zero has a say; the
///            same result in a constant expression, on the host and on a device; law 10
template <dtype_tag Format>
struct codec;

/// A format whose codes have a value: `codec<Format>` decodes.
template <class Format>
concept float_format = dtype_tag<Format> && requires(typename codec<Format>::bits code) {
  requires std::unsigned_integral<typename codec<Format>::bits>;
  { codec<Format>::decode(code) } -> std::same_as<float>;
};

/// A format that values can be rounded to: `codec<Format>` encodes too.
template <class Format>
concept encodable_format = float_format<Format> && requires(float value) {
  { codec<Format>::encode(value) } -> std::same_as<typename codec<Format>::bits>;
};

/// The integer that holds one code of a format: `code_of<bf16>` is `std::uint16_t`.
template <float_format Format>
using code_of = typename codec<Format>::bits;

/// The bit pattern of a float. (`std::bit_cast` is a host function to nvcc.)
WRELOAD_HOST_DEVICE constexpr std::uint32_t fp32_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }

/// The float with this bit pattern; NaN payloads are kept.
WRELOAD_HOST_DEVICE constexpr float fp32_from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// The one NaN that results have.
inline constexpr std::uint32_t fp32_nan_bits = 0x7FFFFFFFU;

/// Whether a bit pattern of fp32 is a NaN.
WRELOAD_HOST_DEVICE constexpr bool is_nan_bits(std::uint32_t bits) { return (bits & 0x7FFFFFFFU) > 0x7F800000U; }

namespace detail {

/// `condition ? a : b` as data flow, not control flow: loops over codes then vectorise, whatever else a and b need.
WRELOAD_HOST_DEVICE constexpr std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
  return b ^ ((a ^ b) & (0U - static_cast<std::uint32_t>(condition)));
}

/// Bit pattern of the fp32 value of a sign-less code with `MantissaBits` and exponent bias `Bias`, every exponent
/// taken as a finite one. Subnormal codes become normal floats: their integer mantissa is converted exactly and its
/// exponent lowered by an integer subtraction.
template <int MantissaBits, int Bias>
WRELOAD_HOST_DEVICE constexpr std::uint32_t widen_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - Bias) << 23;
  constexpr std::uint32_t subnormal_exponent = static_cast<std::uint32_t>(Bias - 1 + MantissaBits) << 23;
  const std::uint32_t normal = (magnitude << (23 - MantissaBits)) + rebias;
  const std::uint32_t counted = fp32_bits(static_cast<float>(static_cast<std::int32_t>(magnitude)));
  const std::uint32_t subnormal = select(magnitude != 0, counted - subnormal_exponent, 0U);
  return select((magnitude >> MantissaBits) != 0, normal, subnormal);
}

/// The inverse, rounded to nearest even: sign-less code nearest to a sign-less fp32 pattern. Values beyond the format
/// give codes beyond its largest finite one, which the caller clamps; a NaN gives any code.
template <int MantissaBits, int Bias>
WRELOAD_HOST_DEVICE constexpr std::uint32_t narrow_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t dropped_bits = 23 - MantissaBits;
  constexpr std::uint32_t first_normal = 128 - Bias;  // the fp32 exponent field of the format's smallest normal
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent >= first_normal) {
    const std::uint32_t rebased = magnitude - ((first_normal - 1) << 23);
    const std::uint32_t odd = (rebased >> dropped_bits) & 1U;
    return (rebased + (1U << (dropped_bits - 1)) - 1U + odd) >> dropped_bits;
  }
  // A subnormal code counts multiples of the smallest one.
  const std::uint32_t shift = dropped_bits + first_normal - exponent;
  if (shift > 24) return 0;  // less than half of the smallest; fp32 subnormals end here
  const std::uint32_t significand = (magnitude & 0x007FFFFFU) | 0x00800000U;
  const std::uint32_t odd = (significand >> shift) & 1U;
  return (significand + (1U << (shift - 1)) - 1U + odd) >> shift;
}

}  // namespace detail
}  // namespace wreload
