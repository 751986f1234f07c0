#pragma once
/// Law 10 on the device: every code of every stored format times edge scales, through the executor, against the host's
/// codec. Compiled twice: with usual flags and with -use_fast_math.

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "../cuda_memory.cuh"

namespace wreload::test {
namespace {

/// fp32 scales where something happens: zeros, subnormals, ties, products that overflow, infinities, NaNs; then random.
std::vector<std::uint32_t> fp32_scales(int random) {
  std::vector<std::uint32_t> scales = {
      0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000007, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001,
      0x00FFFFFF, 0x01000000, 0x02345678, 0x04000000, 0x0C8CCCCD, 0x3727C5AC, 0x3B800000, 0x3DCCCCCD, 0x3E800000,
      0x3F69C71C, 0x3F6B8E39, 0x3F6F1C72, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F808000, 0x3F808001, 0x3F818000,
      0x40490FDB, 0x42FFFFFF, 0x43000000, 0x46FFFFFF, 0x47800000, 0x7A7FFFFF, 0x7B000000, 0x7B924924, 0x7E800000,
      0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0xBF808000, 0xBDCCCCCD};
  std::uint32_t state = 12345;
  for (int i = 0; i < random; ++i) scales.push_back(state = state * 1664525U + 1013904223U);
  return scales;
}

template <class Scale>
std::vector<code_of<Scale>> scales_of() {
  std::vector<code_of<Scale>> codes;
  if constexpr (Scale::id == dtype::fp32) {
    for (const std::uint32_t scale : fp32_scales(20000)) codes.push_back(scale);
  } else {
    const std::uint32_t all = std::uint32_t{1} << (8 * sizeof(code_of<Scale>));
    for (std::uint32_t code = 0; code < all; ++code) codes.push_back(static_cast<code_of<Scale>>(code));
  }
  return codes;
}

/// Dequantises the 256 codes with each scale, one scale a row, in place, and compares with the host. `misaligned` takes
/// the path of single elements.
template <class Stored, class Runtime, class Scale>
void check_all_codes(cuda_executor& run, test_memory<cuda_executor>& memory, bool misaligned) {
  using element = code_of<Runtime>;
  std::vector<code_of<Scale>> scales = scales_of<Scale>();
  if (misaligned && scales.size() > 4096) scales.resize(4096);
  const auto rows = static_cast<std::int64_t>(scales.size());
  const std::int64_t stride = 256 * std::int64_t{sizeof(element)} + (misaligned ? 1 : 0);
  std::vector<std::byte> host(static_cast<std::size_t>(rows * stride));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < 256; ++c) host[static_cast<std::size_t>(r * stride + c)] = static_cast<std::byte>(c);
  const auto bytes = static_cast<std::int64_t>(host.size());
  std::byte* weight = memory.allocate(bytes, std::byte{0});
  std::byte* grid = memory.allocate(rows * std::int64_t{sizeof(code_of<Scale>)}, std::byte{0});
  memory.write(weight, host.data(), bytes);
  memory.write(grid, scales.data(), rows * std::int64_t{sizeof(code_of<Scale>)});
  auto lane = run.open_own();
  const dequant_key key{Stored::id, Runtime::id, Scale::id, 1, 0};
  const dequant_job job{.source = weight, .destination = weight, .scale = grid, .rows = rows, .cols = 256,
                        .source_row_stride_bytes = stride, .destination_row_stride_bytes = stride,
                        .scale_row_stride_bytes = sizeof(code_of<Scale>)};
  REQUIRE(run.dequantise(lane, key, {&job, 1}).ok());
  REQUIRE(run.wait(lane).ok());
  memory.read(host.data(), weight, bytes);
  std::int64_t wrong = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < 256; ++c) {
      element found;
      std::memcpy(&found, host.data() + r * stride + c * std::int64_t{sizeof(element)}, sizeof found);
      const auto scale = scales[static_cast<std::size_t>(r)];
      const element expected = dequantise<Stored, Runtime, Scale>(static_cast<std::uint8_t>(c), scale);
      if (found == expected) continue;
      if (wrong++ == 0) {
        CAPTURE(c);
        CAPTURE(scale);
        CHECK(found == expected);
      }
    }
  CHECK(wrong == 0);
  memory.free(weight);
  memory.free(grid);
}

void check_all_formats() {
  cuda_executor run;
  REQUIRE(run.reserve({}).ok());
  test_memory<cuda_executor> memory;
  int combinations = 0;
  for (int stored = 0; stored < dtype_count; ++stored)
    for (int runtime = 0; runtime < dtype_count; ++runtime)
      for (int scale = 0; scale < dtype_count; ++scale)
        visit_dequant(static_cast<dtype>(stored), static_cast<dtype>(runtime), static_cast<dtype>(scale),
                      [&](auto from, auto to, auto by) {
                        CAPTURE(name_of(from.id));
                        CAPTURE(name_of(to.id));
                        CAPTURE(name_of(by.id));
                        for (const bool misaligned : {false, true})
                          check_all_codes<decltype(from), decltype(to), decltype(by)>(run, memory, misaligned);
                        ++combinations;
                      });
  CHECK(combinations == 18);
}

/// Every code of every dtype that widens, landed from a device source.
void check_all_widenings() {
  cuda_executor run;
  REQUIRE(run.reserve({}).ok());
  test_memory<cuda_executor> memory;
  auto lane = run.open_own();
  for (int from = 0; from < dtype_count; ++from)
    for (int to = 0; to < dtype_count; ++to)
      visit_widening(static_cast<dtype>(from), static_cast<dtype>(to), [&](auto from_tag, auto to_tag) {
        using From = decltype(from_tag);
        using To = decltype(to_tag);
        const std::int64_t count = std::int64_t{1} << (8 * sizeof(code_of<From>));
        std::vector<code_of<From>> codes(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i)
          codes[static_cast<std::size_t>(i)] = static_cast<code_of<From>>(i);
        std::byte* source = memory.allocate(count * std::int64_t{sizeof(code_of<From>)}, std::byte{0});
        std::byte* wide = memory.allocate(count * std::int64_t{sizeof(code_of<To>)}, std::byte{0});
        memory.write(source, codes.data(), count * std::int64_t{sizeof(code_of<From>)});
        const land_job job{.source = source, .destination = wide, .rows = count, .cols = 1,
                           .source_row_stride_bytes = sizeof(code_of<From>), .source_col_stride_bytes = 1,
                           .destination_row_stride_bytes = sizeof(code_of<To>), .from = From::id, .to = To::id,
                           .memory = memory_kind::device};
        REQUIRE(run.land(lane, {&job, 1}).ok());
        REQUIRE(run.wait(lane).ok());
        std::vector<code_of<To>> found(static_cast<std::size_t>(count));
        memory.read(found.data(), wide, count * std::int64_t{sizeof(code_of<To>)});
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] != widen<From, To>(codes[i]);
        CAPTURE(name_of(From::id));
        CAPTURE(name_of(To::id));
        CHECK(wrong == 0);
        memory.free(source);
        memory.free(wide);
      });
}

}  // namespace
}  // namespace wreload::test
