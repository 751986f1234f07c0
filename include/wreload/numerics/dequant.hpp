#pragma once
/// The one arithmetic: a stored code times its scale, rounded to the runtime format.

#include "codecs.hpp"

namespace wreload {

/// The fp32 product, rounded once to nearest even, subnormals kept: the same bits under any compiler flag.
///
/// Device: PTX `mul.rn.f32`, which no flag rewrites (-use_fast_math turns `*` and even `__fmul_rn` into the flushing
/// form). Host: one `*`. Contraction needs an addition and reassociation a second floating-point operation, and there
/// is neither: decoders make both operands, and encoders read the product, as integers. (A caller with operands that
/// it has just computed keeps -fassociative-math away from them itself.) Flush to zero is a mode of the host thread,
/// which no code here could undo: `seal()` refuses it (environment.hpp).
///
/// Partial:   in a constant expression, compilers refuse a product that overflows or is infinity times zero
WRELOAD_HOST_DEVICE constexpr float dequant_product(float value, float scale) {
  if (__builtin_is_constant_evaluated()) {
    const bool nan = is_nan_bits(fp32_bits(value)) || is_nan_bits(fp32_bits(scale));
    return nan ? fp32_from_bits(fp32_nan_bits) : value * scale;
  }
#if defined(__CUDA_ARCH__)
  float product = 0;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(value), "f"(scale));
  return product;
#else
  return value * scale;
#endif
}

/// Dequantises one element.
///
/// Meaning:   runtime(w) = rne(fp32(q) * fp32(s)): two roundings, first to fp32, then to nearest even; no FMA, no
///            double. -0 and subnormals are kept, every NaN is the runtime format's one NaN, overflow is infinity
/// Source:    DeepSeek-V3 weight_dequant; formats.md 2.5; law 10
/// Cost:      one multiply; the rest is integer selects that compilers vectorise
template <float_format Stored, encodable_format Runtime, float_format Scale>
WRELOAD_HOST_DEVICE constexpr code_of<Runtime> dequantise(code_of<Stored> code, code_of<Scale> scale) {
  return codec<Runtime>::encode(dequant_product(codec<Stored>::decode(code), codec<Scale>::decode(scale)));
}

// A tie goes to even; the fp32 rounding comes first (a single rounding would give 0x3F83).
static_assert(dequantise<fp8_e4m3, bf16, fp32>(0x38, 0x3F808000U) == 0x3F80);
static_assert(dequantise<fp8_e4m3, bf16, fp32>(0x39, 0x3F69C71CU) == 0x3F84);

}  // namespace wreload
