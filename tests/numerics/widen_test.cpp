// Widening loses nothing, for every code of every pair; the list of pairs is neither shorter nor longer than that.
#include <cmath>

#include <doctest/doctest.h>

#include <wreload/numerics/widen.hpp>

#include "../reference/numerics.hpp"

namespace wr = wreload;

// 2^-127 is a subnormal of bf16 and of fp32.
static_assert(wr::widen<wr::fp8_ue8m0, wr::bf16>(0) == 0x0040);
static_assert(wr::widen<wr::fp8_ue8m0, wr::fp32>(0) == 0x00400000U);
static_assert(wr::widen<wr::fp8_ue8m0, wr::bf16>(255) == 0x7FFF);
static_assert(wr::widen<wr::fp8_e4m3, wr::bf16>(0x80) == 0x8000);
static_assert(wr::widen<wr::fp8_e4m3, wr::fp16>(0xFF) == 0x7FFF);
static_assert(wr::widen<wr::fp8_e5m2, wr::fp16>(0x01) == 0x0100);
static_assert(wr::widen<wr::fp8_e5m2, wr::fp16>(0xFC) == 0xFC00);
static_assert(wr::widen<wr::fp16, wr::fp32>(0x0001) == 0x33800000U);
// Payloads: bf16 -> fp32 is a shift, the same dtype is a copy.
static_assert(wr::widen<wr::bf16, wr::fp32>(0xFF81) == 0xFF810000U);
static_assert(wr::widen<wr::bf16, wr::bf16>(0xFF81) == 0xFF81);
static_assert(wr::widen<wr::fp16, wr::fp32>(0xFC01) == 0x7FFFFFFFU);
static_assert(!wr::widening_of<wr::bf16, wr::fp32> && !wr::widening_of<wr::fp64, wr::fp32>);
static_assert(!wr::widening_of<wr::u8, wr::u8>);  // may land, as bytes, but is no format

TEST_CASE("every value survives every widening") {
  int pairs = 0;
  const auto check = [&](auto from_tag, auto to_tag) {
    using From = decltype(from_tag);
    using To = decltype(to_tag);
    ++pairs;
    for (std::uint32_t code = 0; code >> (8 * sizeof(wr::code_of<From>)) == 0; ++code) {
      const double before = reference::value_of(From::id, code);
      const double after = reference::value_of(To::id, wr::widen<From, To>(static_cast<wr::code_of<From>>(code)));
      CAPTURE(code);
      REQUIRE(std::isnan(before) == std::isnan(after));
      if (std::isnan(before)) continue;
      REQUIRE(before == after);
      REQUIRE(std::signbit(before) == std::signbit(after));
    }
  };
  for (int from = 0; from < wr::dtype_count; ++from) {
    for (int to = 0; to < wr::dtype_count; ++to) {
      const int before = pairs;
      const bool found = wr::visit_widening(static_cast<wr::dtype>(from), static_cast<wr::dtype>(to), check);
      CHECK((pairs == before + 1) == found);
    }
  }
  CHECK(pairs == 10);
}

TEST_CASE("widens says which dtypes may land where") {
  using enum wr::dtype;
  for (int i = 1; i < wr::dtype_count; ++i) CHECK(wr::widens(static_cast<wr::dtype>(i), static_cast<wr::dtype>(i)));
  CHECK_FALSE(wr::widens(none, none));
  CHECK(wr::widens(bf16, fp32));
  CHECK_FALSE(wr::widens(fp32, bf16));
  CHECK_FALSE(wr::widens(fp16, bf16));
  CHECK_FALSE(wr::widens(bf16, fp16));
  CHECK_FALSE(wr::widens(fp8_e4m3, fp8_e5m2));
  CHECK_FALSE(wr::widens(fp8_ue8m0, fp16));
  CHECK_FALSE(wr::widens(u8, fp8_ue8m0));
  CHECK_FALSE(wr::widens(u8, u16));
  CHECK_FALSE(wr::widens(fp4_e2m1x2, bf16));
}

// The list is complete: among fp8, ue8m0, fp16, bf16 and fp32 it has every pair that loses no value, and no other.
TEST_CASE("pairs that are left out lose a value") {
  using enum wr::dtype;
  const auto exact = [](wr::dtype from, wr::dtype to) {
    for (std::uint32_t code = 0; code >> (8 * wr::bytes_of(from)) == 0; ++code) {
      const double value = reference::value_of(from, code);
      if (std::isnan(value)) continue;
      if (reference::value_of(to, reference::nearest(to, value)) != value) return false;
    }
    return true;
  };
  for (const wr::dtype from : {fp8_e4m3, fp8_e5m2, fp8_ue8m0, fp16, bf16}) {
    for (const wr::dtype to : {fp16, bf16, fp32}) {
      CAPTURE(wr::name_of(from));
      CAPTURE(wr::name_of(to));
      CHECK(wr::widens(from, to) == (from == to || exact(from, to)));
    }
  }
}
