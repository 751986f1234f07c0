#pragma once
/// Conversions that lose nothing: what a landing may do to a tensor by itself.

#include "codecs.hpp"

namespace wreload {

/// Calls `visit(from_tag, to_tag)` where `from` widens to the *different* dtype `to`; false otherwise. This list is
/// the definition: every value of `from`, -0 and subnormals too, is a value of `to`.
template <class Visit>
constexpr bool visit_widening(dtype from, dtype to, Visit&& visit) {
  const auto pair = [&](auto from_tag, auto to_tag) {
    if (from != from_tag.id || to != to_tag.id) return false;
    visit(from_tag, to_tag);
    return true;
  };
  return pair(bf16{}, fp32{}) || pair(fp16{}, fp32{}) ||                                      //
         pair(fp8_e4m3{}, bf16{}) || pair(fp8_e4m3{}, fp16{}) || pair(fp8_e4m3{}, fp32{}) ||  //
         pair(fp8_e5m2{}, bf16{}) || pair(fp8_e5m2{}, fp16{}) || pair(fp8_e5m2{}, fp32{}) ||  //
         pair(fp8_ue8m0{}, bf16{}) || pair(fp8_ue8m0{}, fp32{});
}

/// Whether a tensor of dtype `from` may land in storage of dtype `to`: the same dtype (bytes are copied, NaN
/// payloads too), or a widening of `visit_widening`. False for `dtype::none`.
constexpr bool widens(dtype from, dtype to) {
  if (from == to) return from != dtype::none;
  return visit_widening(from, to, [](auto, auto) {});
}

/// A format that holds every value of `From`: `widening_of<fp32, bf16>`.
template <class To, class From>
concept widening_of = float_format<To> && float_format<From> && widens(From::id, To::id);

/// Widens one code exactly.
///
/// Meaning:   the same value; a NaN becomes the one NaN of `To`, but bf16 -> fp32 is a shift and keeps its payload,
///            and equal dtypes keep every bit
template <float_format From, widening_of<From> To>
WRELOAD_HOST_DEVICE constexpr code_of<To> widen(code_of<From> code) {
  if constexpr (From::id == To::id) {
    return code;
  } else if constexpr (From::id == dtype::bf16) {
    return static_cast<code_of<To>>(static_cast<std::uint32_t>(code) << 16);
  } else {
    return codec<To>::encode(codec<From>::decode(code));  // integers only: 2^-127 passes as an fp32 subnormal
  }
}

static_assert(widens(dtype::bf16, dtype::fp32) && !widens(dtype::fp32, dtype::bf16));
static_assert(widens(dtype::fp8_ue8m0, dtype::bf16) && !widens(dtype::fp8_ue8m0, dtype::fp16));
static_assert(widen<bf16, fp32>(0x7F81) == 0x7F810000U);

}  // namespace wreload
