// Tensor views: what they say about themselves.
#include <type_traits>

#include <doctest/doctest.h>

#include <wreload/core/tensor_ref.hpp>

namespace wr = wreload;

static_assert(std::is_trivially_copyable_v<wr::tensor_ref>);
static_assert(wr::stream_ref{} == wr::stream_ref{nullptr});

TEST_CASE("no strides mean row-major") {
  constexpr wr::tensor_ref dense{nullptr, wr::dtype::bf16, {4, 6}};
  static_assert(dense.row_major() && dense.bytes() == 48);
  constexpr wr::tensor_ref transposed{nullptr, wr::dtype::bf16, {4, 6}, {1, 4}};
  static_assert(!transposed.row_major() && transposed.bytes() == 48);
  static_assert(dense.memory == wr::memory_kind::pageable);
}

TEST_CASE("bytes of a scalar, of nothing and of packed fp4") {
  CHECK(wr::tensor_ref{nullptr, wr::dtype::fp32, {}}.bytes() == 4);
  CHECK(wr::tensor_ref{nullptr, wr::dtype::fp32, {0, 7}}.bytes() == 0);
  CHECK(wr::tensor_ref{nullptr, wr::dtype::fp4_e2m1x2, {2, 8}}.bytes() == 16);
}

TEST_CASE("spelled as dtype and shape") {
  CHECK(wr::to_string(wr::tensor_ref{nullptr, wr::dtype::fp8_e4m3, {4096, 7168}}) == "F8_E4M3 [4096, 7168]");
  CHECK(wr::to_string(wr::tensor_ref{nullptr, wr::dtype::fp32, {}}) == "F32 []");
}
