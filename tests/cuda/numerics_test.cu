// Law 10 on the device with usual flags, and the host's codec against NVIDIA's own conversions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "numerics_cases.cuh"

namespace wreload::test {
namespace {

/// What NVIDIA's headers make of code c and scale r: bf16 and fp16 of e4m3 and e5m2, 4 values an element.
__global__ void hardware_products(const std::uint32_t* scales, std::int64_t rows, std::uint16_t* out) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * 256; i += gridDim.x * blockDim.x) {
    const float scale = __uint_as_float(scales[i / 256]);
    for (int format = 0; format < 2; ++format) {
      const __half_raw half = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(i % 256),
                                                      format == 0 ? __NV_E4M3 : __NV_E5M2);
      const float product = __fmul_rn(__half2float(__half(half)), scale);
      out[4 * i + 2 * format] = __bfloat16_as_ushort(__float2bfloat16_rn(product));
      out[4 * i + 2 * format + 1] = __half_as_ushort(__float2half_rn(product));
    }
  }
}

}  // namespace

TEST_CASE("cuda: all 256 codes x edge scales equal the host, every format, aligned or not") { check_all_formats(); }

TEST_CASE("cuda: every code of every widening equals the host") { check_all_widenings(); }

TEST_CASE("cuda: the host's codec equals the hardware conversions") {
  const std::vector<std::uint32_t> scales = fp32_scales(20000);
  const auto rows = static_cast<std::int64_t>(scales.size());
  test_memory<cuda_executor> memory;
  std::byte* given = memory.allocate(rows * 4, std::byte{0});
  std::byte* made = memory.allocate(rows * 256 * 4 * 2, std::byte{0});
  memory.write(given, scales.data(), rows * 4);
  hardware_products<<<512, 256>>>(reinterpret_cast<const std::uint32_t*>(given), rows,
                                  reinterpret_cast<std::uint16_t*>(made));
  WRELOAD_TEST_CUDA(cudaGetLastError());
  WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
  std::vector<std::uint16_t> found(static_cast<std::size_t>(rows * 256 * 4));
  memory.read(found.data(), made, rows * 256 * 4 * 2);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows * 256); ++i) {
    const auto code = static_cast<std::uint8_t>(i % 256);
    const std::uint32_t scale = scales[i / 256];
    const std::uint16_t expected[4] = {
        dequantise<fp8_e4m3, bf16, fp32>(code, scale), dequantise<fp8_e4m3, fp16, fp32>(code, scale),
        dequantise<fp8_e5m2, bf16, fp32>(code, scale), dequantise<fp8_e5m2, fp16, fp32>(code, scale)};
    for (std::size_t k = 0; k < 4; ++k) wrong += found[4 * i + k] != expected[k];
  }
  CHECK(wrong == 0);
}

}  // namespace wreload::test
