#pragma once
/// From a run-time dtype to its tag: how a run-time key picks what was compiled.

#include "../core/dtype.hpp"

namespace wreload {

/// Calls `visit(Tag{})` for the tag among `Tags` whose id is `type` and returns what it returned (as bool); false
/// where there is none.
///
///   visit_dtype<bf16, fp32>(type, [](auto tag) { return use<decltype(tag)>(); });
template <dtype_tag... Tags, class Visit>
constexpr bool visit_dtype(dtype type, Visit&& visit) {
  return (... || (type == Tags::id && static_cast<bool>(visit(Tags{}))));
}

/// Calls `visit(stored_tag, runtime_tag, scale_tag)` where the library dequantises that combination; false otherwise.
///
///   stored   fp8_e4m3, fp8_e5m2
///   runtime  bf16, fp16, fp32
///   scale    fp32, bf16, fp8_ue8m0
///
/// Cost:      instantiates `visit` 18 times
template <class Visit>
constexpr bool visit_dequant(dtype stored, dtype runtime, dtype scale, Visit&& visit) {
  return visit_dtype<fp8_e4m3, fp8_e5m2>(stored, [&](auto stored_tag) {
    return visit_dtype<bf16, fp16, fp32>(runtime, [&](auto runtime_tag) {
      return visit_dtype<fp32, bf16, fp8_ue8m0>(scale, [&](auto scale_tag) {
        visit(stored_tag, runtime_tag, scale_tag);
        return true;
      });
    });
  });
}

/// Whether the library dequantises this combination.
constexpr bool dequantises(dtype stored, dtype runtime, dtype scale) {
  return visit_dequant(stored, runtime, scale, [](auto, auto, auto) {});
}

static_assert(dequantises(dtype::fp8_e4m3, dtype::bf16, dtype::fp32));
static_assert(!dequantises(dtype::bf16, dtype::bf16, dtype::fp32));

}  // namespace wreload
