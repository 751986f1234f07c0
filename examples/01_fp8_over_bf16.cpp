// A BF16 linear layer takes block-FP8 weights in place: describe, seal, start, load in any order, finish.
// 01_fp8_over_bf16_cuda.cu compiles this file for a GPU.

#include <wreload/wreload.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace wr = wreload;

#ifndef WRELOAD_EXAMPLE_ON_CUDA
using executor = wr::host_executor;
template <class T>
using buffer = std::vector<T>;
#endif

int main() {
  // The engine owns the memory: 256 x 384 BF16 weights, and room for the scales that arrive with FP8.
  buffer<std::uint16_t> weight(256 * 384);  // a std::vector; on a GPU device memory
  buffer<float> scale(2 * 3);

  wr::model<executor> model;
  wr::status error = model.add<wr::Fp8DequantLinear>("mlp.down_proj", wr::extents::matrix("mlp.down_proj", 256, 384),
                                                     weight.data(), scale.data());
  if (error.ok()) error = model.seal();

  // What a trainer sends: FP8 codes (0x38 is 1.0) and one FP32 multiplier per 128 x 128 block.
  const std::vector<std::uint8_t> codes(256 * 384, 0x38);
  const std::vector<float> multipliers = {0.5F, 1.0F, 2.0F, 4.0F, 8.0F, 16.0F};

  auto update = model.start({}, &error);
  const auto load = [&](const char* name, const wr::tensor_ref& tensor) {
    if (error.ok()) error = update.load(name, tensor);
  };
  load("mlp.down_proj.weight_scale_inv", {multipliers.data(), wr::dtype::fp32, {2, 3}});  // any order
  load("mlp.down_proj.weight", {codes.data(), wr::dtype::fp8_e4m3, {256, 384}});
  if (error.ok()) error = update.finish();

  const std::uint16_t first = weight.front(), last = weight.back();
  std::printf("%s: version %lld, %s, first weight %04X, last %04X\n", error.message().c_str(),
              static_cast<long long>(model.version()), wr::name_of(model.state()).data(), first, last);
  return error.ok() && first == 0x3F00 && last == 0x4180 ? 0 : 1;
}
