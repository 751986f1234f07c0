#pragma once
/// `host_dequant`: converts rows of FP8 in plain memory, in place or not.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/job.hpp"
#include "../numerics/codecs.hpp"
#include "../numerics/dequant.hpp"
#include "../numerics/visit.hpp"

namespace wreload::detail {

template <class Use>
class host_dequant {
 public:
  /// Requires: a conversion that `dequantises` knows
  static void convert(const dequant_key& key, const dequant_job& job) {
    visit_dtype<bf16, fp16, fp32>(key.runtime, [&](auto runtime) {
      convert_rows<decltype(runtime)>(key, job);
      return true;
    });
  }

 private:
  /// Every code of an 8-bit format, decoded.
  template <class Stored>
  static constexpr std::array<float, 256> decoded = [] {
    std::array<float, 256> values = {};
    for (unsigned code = 0; code < values.size(); ++code)
      values[code] = codec<Stored>::decode(static_cast<std::uint8_t>(code));
    return values;
  }();

  static float decode_scale(dtype type, const std::byte* code) {
    float value = 0;
    visit_dtype<fp32, bf16, fp8_ue8m0>(type, [&](auto format) {
      typename codec<decltype(format)>::bits bits;
      std::memcpy(&bits, code, sizeof bits);
      value = codec<decltype(format)>::decode(bits);
      return true;
    });
    return value;
  }

  template <class Runtime>
  static void convert_rows(const dequant_key& key, const dequant_job& job) {
    using runtime_bits = typename codec<Runtime>::bits;
    constexpr auto runtime_bytes = static_cast<std::int64_t>(sizeof(runtime_bits));
    const std::array<float, 256>& codes = key.stored == dtype::fp8_e4m3 ? decoded<fp8_e4m3> : decoded<fp8_e5m2>;
    for (std::int64_t r = 0; r < job.rows; ++r) {
      const std::byte* source = job.source + r * job.source_row_stride_bytes;
      std::byte* destination = job.destination + r * job.destination_row_stride_bytes;
      const std::int64_t block_row = key.block_rows == 0 ? 0 : (job.row_phase + r) / key.block_rows;
      const std::byte* scales = job.scale + block_row * job.scale_row_stride_bytes;
      // From the right: in place, element j is read before bytes j * runtime_bytes and up are written.
      for (std::int64_t c_end = job.cols; c_end > 0;) {
        const std::int64_t block = key.block_cols == 0 ? 0 : (job.col_phase + c_end - 1) / key.block_cols;
        const std::int64_t c_begin =
            key.block_cols == 0 ? 0 : std::max<std::int64_t>(block * key.block_cols - job.col_phase, 0);
        const float scale = decode_scale(key.scale, scales + block * bytes_of(key.scale));
        for (std::int64_t c = c_end; c-- > c_begin;) {
          const float code = codes[std::to_integer<std::size_t>(source[c])];
          const runtime_bits value = codec<Runtime>::encode(dequant_product(code, scale));
          std::memcpy(destination + c * runtime_bytes, &value, sizeof value);
        }
        c_end = c_begin;
      }
    }
  }
};

}  // namespace wreload::detail
