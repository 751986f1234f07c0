// An engine's own layouts: absorbed MLA weights and an FP32 shadow, derived at `finish` by the engine's own launchers,
// at fixed addresses, once per update that changes what they read.

#include <wreload/wreload.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace wr = wreload;

// Names are tags. kv_b_proj.weight is [heads * (keys + values), rank]: of each head its key rows, then its value rows.
struct weight { static constexpr std::string_view name = "weight"; };
struct weight_scale_inv { static constexpr std::string_view name = "weight_scale_inv"; };
struct w_uk_t { static constexpr std::string_view name = "w_uk_t"; };
struct w_uv { static constexpr std::string_view name = "w_uv"; };
struct bias { static constexpr std::string_view name = "bias"; };
struct bias_fp32 { static constexpr std::string_view name = "bias_fp32"; };
constexpr std::int64_t heads = 2, keys = 2, values = 2, rank = 4;

// What a launcher gets: a stream (null on the host), its sources, and the bound destination. An engine on a GPU enqueues
// its kernel on the stream; the copies here are done when they return.
using sources = std::span<const wr::runtime_tensor>;
const std::byte* element(const wr::runtime_tensor& of, std::int64_t row, std::int64_t col) {
  return of.data + row * of.row_stride_bytes + col * bytes_of(of.type);
}

struct absorb_keys {  // w_uk_t [heads, rank, keys]
  static constexpr wr::dtype type = wr::dtype::bf16;
  static wr::shape extents(std::span<const wr::shape> from) { return {from[0][0] / (keys + values), from[0][1], keys}; }
  static wr::status launch(wr::stream_ref, sources from, const wr::runtime_tensor& to) {
    std::byte* out = to.data;
    for (std::int64_t h = 0; h < to.extents[0]; ++h)
      for (std::int64_t l = 0; l < to.extents[1]; ++l)
        for (std::int64_t k = 0; k < keys; ++k, out += 2)
          std::memcpy(out, element(from[0], h * (keys + values) + k, l), 2);
    return {};
  }
};
struct absorb_values {  // w_uv [heads, values, rank]
  static constexpr wr::dtype type = wr::dtype::bf16;
  static wr::shape extents(std::span<const wr::shape> from) { return {from[0][0] / (keys + values), values, from[0][1]}; }
  static wr::status launch(wr::stream_ref, sources from, const wr::runtime_tensor& to) {
    std::byte* out = to.data;
    for (std::int64_t h = 0; h < to.extents[0]; ++h)
      for (std::int64_t v = 0; v < values; ++v, out += 2 * rank)
        std::memcpy(out, element(from[0], h * (keys + values) + keys + v, 0), 2 * rank);
    return {};
  }
};
struct widen {  // the shadow of a BF16 vector
  static constexpr wr::dtype type = wr::dtype::fp32;
  static wr::shape extents(std::span<const wr::shape> from) { return from[0]; }
  static wr::status launch(wr::stream_ref, sources from, const wr::runtime_tensor& to) {
    for (std::int64_t i = 0; i < to.extents[0]; ++i) std::memcpy(to.data + 4 * i + 2, element(from[0], i, 0), 2);
    return {};
  }
};

struct AbsorbedMla : wr::ParamLayout<
    wr::Param<weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>, wr::ScaledBy<weight_scale_inv>>,
    wr::Param<weight_scale_inv, wr::BlockScale<2, 4, wr::fp32>, wr::Retired>,
    wr::Derived<w_uk_t, wr::Bind, wr::Launch<absorb_keys, weight>>,
    wr::Derived<w_uv, wr::Bind, wr::Launch<absorb_values, weight>>> {};
struct ShadowedBias : wr::ParamLayout<
    wr::Param<bias, wr::StorageView<wr::bf16>>,
    wr::Derived<bias_fp32, wr::Bind, wr::Launch<widen, bias>>> {};

int main() {
  std::vector<std::uint16_t> kv_b(8 * rank), uk_t(heads * rank * keys), uv(heads * values * rank), router(3);
  std::vector<float> scales(4), shadow(3);

  wr::model<> model;
  wr::status error = model.add<AbsorbedMla>("attn.kv_b_proj", wr::extents::matrix("attn.kv_b_proj", 8, rank), kv_b.data(),
                                            scales.data(), uk_t.data(), uv.data());
  if (error.ok())
    error = model.add<ShadowedBias>("router", {.shards = {{.module = "router", .rows = 3}}}, router.data(), shadow.data());
  if (error.ok()) error = model.seal();

  // FP8 codes 1, 1.125, ... 8 along each row; one multiplier for the key rows of a head, one for its value rows.
  const std::uint8_t row[rank] = {0x38, 0x39, 0x40, 0x50};
  std::vector<std::uint8_t> codes;
  for (int r = 0; r < 8; ++r) codes.insert(codes.end(), row, row + rank);
  const float multipliers[] = {1, 2, 4, 0.5F};
  const std::uint16_t biases[] = {0x3F80, 0xC000, 0x0001};  // 1, -2, the smallest subnormal

  auto update = model.start({}, &error);
  const auto load = [&](const char* name, const wr::tensor_ref& tensor) {
    if (error.ok()) error = update.load(name, tensor);
  };
  load("router.bias", {biases, wr::dtype::bf16, {3}});
  load("attn.kv_b_proj.weight_scale_inv", {multipliers, wr::dtype::fp32, {4, 1}});
  load("attn.kv_b_proj.weight", {codes.data(), wr::dtype::fp8_e4m3, {8, rank}});
  if (error.ok()) error = update.finish();

  // Head 1's keys, transposed: 4 * {1, 1.125, 2, 8}, each for both rows; head 0's values: 2 * the same.
  const std::vector<std::uint16_t> wanted_keys = {0x4080, 0x4080, 0x4090, 0x4090, 0x4100, 0x4100, 0x4200, 0x4200};
  const std::vector<std::uint16_t> wanted_values = {0x4000, 0x4010, 0x4080, 0x4180};
  const bool right = std::equal(wanted_keys.begin(), wanted_keys.end(), uk_t.begin() + rank * keys) &&
                     std::equal(wanted_values.begin(), wanted_values.end(), uv.begin()) && shadow[0] == 1 &&
                     shadow[1] == -2 && shadow[2] > 0;
  std::printf("%s: %zu bytes of absorbed weights, %s\n", error.message().c_str(), 2 * (uk_t.size() + uv.size()),
              right ? "as expected" : "WRONG");
  return error.ok() && right ? 0 : 1;
}
