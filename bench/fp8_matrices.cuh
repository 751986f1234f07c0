#pragma once
/// Block-FP8 matrices for benchmarks: random data, and a check that shares nothing with the library.

#include <string>
#include <vector>

#include <wreload/wreload.cuh>

#include "harness.cuh"
#include "plain_dequant.cuh"

namespace bench {

namespace wr = wreload;

/// An FP8 matrix in 128 x 128 blocks and where it runs in BF16.
struct matrix {
  std::string layer_name, weight_name, scale_name;
  std::int64_t rows = 0, cols = 0;
  int which = 0;
  std::uint64_t seed = 0;  ///< of the data that was loaded last
  std::uint8_t* codes = nullptr;   // (rows, cols) e4m3
  std::uint32_t* scales = nullptr; // (rows / 128, cols / 128) fp32, rounded up
  std::uint16_t* weight = nullptr; // (rows, cols) bf16
  std::uint32_t* grid = nullptr;   // the registered scale storage

  std::int64_t elements() const { return rows * cols; }
  std::int64_t blocks() const { return (rows + 127) / 128 * ((cols + 127) / 128); }
};

struct size {
  std::int64_t rows, cols;
};
inline constexpr size shapes[] = {{2112, 7168}, {24576, 1536}, {7168, 16384}};  // of a layer's matrices

namespace {

__global__ void count_wrong(const std::uint16_t* weight, const std::uint8_t* codes, const std::uint32_t* scales,
                            std::int64_t rows, std::int64_t cols, unsigned long long* wrong) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * cols; i += stride) {
    const std::int64_t block = i / cols / 128 * ((cols + 127) / 128) + i % cols / 128;
    mine += weight[i] != plain_dequant(codes[i], __uint_as_float(scales[block]));
  }
  if (mine != 0) atomicAdd(wrong, mine);
}

/// A layer's matrix with device memory for all four of its arrays.
matrix make_matrix(int layer, int which) {
  const auto [rows, cols] = shapes[which];
  const std::string name = "layers." + std::to_string(layer) + ".w" + std::to_string(which);
  matrix made{name, name + ".weight", name + ".weight_scale_inv", rows, cols, which};
  made.codes = device_array<std::uint8_t>(made.elements());
  made.scales = device_array<std::uint32_t>(made.blocks());
  made.weight = device_array<std::uint16_t>(made.elements());
  made.grid = device_array<std::uint32_t>(made.blocks());
  return made;
}

/// New random data in the checkpoint's form, and poison in the weight.
void draw(matrix& each, std::uint64_t seed, cudaStream_t stream) {
  each.seed = seed;
  random_bytes<<<2048, 256, 0, stream>>>(reinterpret_cast<std::uint64_t*>(each.codes),
                                         static_cast<std::uint64_t>(each.elements()), seed);
  random_scales<<<64, 256, 0, stream>>>(each.scales, static_cast<std::uint64_t>(each.blocks()), seed);
  BENCH_CUDA(cudaMemsetAsync(each.weight, 0xA5, static_cast<std::size_t>(each.elements()) * 2, stream));
}

void append_pieces(const matrix& each, std::vector<wr::piece>& pieces) {
  const wr::shape grid{(each.rows + 127) / 128, (each.cols + 127) / 128};
  pieces.push_back({.name = each.weight_name,
                    .tensor = {.data = each.codes, .type = wr::dtype::fp8_e4m3, .extents = {each.rows, each.cols},
                               .memory = wr::memory_kind::device}});
  pieces.push_back({.name = each.scale_name,
                    .tensor = {.data = each.scales, .type = wr::dtype::fp32, .extents = grid,
                               .memory = wr::memory_kind::device}});
}

}  // namespace
}  // namespace bench
