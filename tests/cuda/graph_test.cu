// Two reloads of an NVFP4 layer under one CUDA graph, whose product reads the runtime bytes.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../update/nvfp4_engine.hpp"

#include "kernels.cuh"

namespace wreload::test {
namespace {

// Two fused modules, padded in rows and columns: weight [224, 48] bytes, block scales [256, 8].
constexpr std::int64_t module_rows[] = {128, 72};
constexpr std::int64_t rows = 200, cols = 80, padded_rows = 224, padded_cols = 96;
constexpr std::int64_t scale_rows = 256, scale_cols = 8;

/// e2m1, the low nibble of a byte first.
__host__ __device__ inline float e2m1(std::uint8_t pair, std::int64_t col) {
  const int code = (col % 2 == 0 ? pair : pair >> 4) & 15;
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const float magnitude =
      exponent == 0 ? 0.5F * static_cast<float>(mantissa) : ldexpf(2.0F + static_cast<float>(mantissa), exponent - 2);
  return code & 8 ? -magnitude : magnitude;
}
/// e4m3; no NaN among the test's codes.
__host__ __device__ inline float e4m3(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float magnitude = exponent == 0 ? ldexpf(static_cast<float>(mantissa), -9)
                                        : ldexpf(8.0F + static_cast<float>(mantissa), exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

/// y = alpha W x, one row a thread, from what the layer's kernels would read. Runs over the pads too.
///
///   weight  [padded_rows, padded_cols / 2]  e2m1 x 2
///   scales  [scale_rows, scale_cols]        e4m3, in the order of `map`
///   alpha   []                              fp32
///   x       [padded_cols]                   fp32
///   y       [padded_rows]                   fp32
__global__ void product(const std::uint8_t* weight, const std::uint8_t* scales, storage_map map, const float* alpha,
                        const float* x, float* y) {
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= padded_rows) return;
  float sum = 0;
  for (std::int64_t col = 0; col < padded_cols; ++col) {
    const float scale = e4m3(scales[map_offset(map, row, col / 16, scale_cols)]);
    // A product of the two codes is exact.
    sum = __fmaf_rn(e2m1(weight[row * (padded_cols / 2) + col / 2], col) * scale, x[col], sum);
  }
  y[row] = __fmul_rn(sum, *alpha);
}

std::vector<float> inputs() {
  std::vector<float> x;
  for (std::int64_t col = 0; col < padded_cols; ++col)
    x.push_back(static_cast<float>(static_cast<std::int64_t>(mixed(static_cast<std::uint64_t>(col)) % 2001) - 1000) / 512.0F);
  return x;
}

nv::layer fused() {
  return nvfp4_linear("layers.0", {{"layers.0.a", module_rows[0]}, {"layers.0.b", module_rows[1]}}, cols);
}

/// Finite values only, so that every row of y tells checkpoints apart.
reference::checkpoint finite_checkpoint(std::uint64_t seed, float input_scale, float weight_scale_2) {
  reference::checkpoint made = nvfp4_checkpoint({fused()}, seed);
  for (auto& [name, value] : made) {
    if (name.ends_with(".weight_scale"))
      for (std::byte& code : value.bytes)
        if ((code & std::byte{0x7F}) == std::byte{0x7F}) code &= std::byte{0xF7};
    if (name.ends_with(".weight_scale_2")) std::memcpy(value.bytes.data(), &weight_scale_2, sizeof weight_scale_2);
    if (name.ends_with(".input_scale")) {
      std::memcpy(value.bytes.data(), &input_scale, sizeof input_scale);
      input_scale /= 2;  // the maximum is the first module's
    }
  }
  return made;
}

/// The product of a checkpoint as it lies on disk; the kernel's operations in the kernel's order.
std::vector<float> product_of(const reference::checkpoint& all, const std::vector<float>& x) {
  std::vector<float> y;
  const float alpha = nv::times(nv::scalar(all, "layers.0.a.input_scale"), nv::scalar(all, "layers.0.a.weight_scale_2"));
  for (const auto& [module, count] : fused().modules) {
    const auto& weight = all.at(module + ".weight").bytes;
    const auto& scales = all.at(module + ".weight_scale").bytes;
    for (std::int64_t row = 0; row < count; ++row) {
      float sum = 0;
      for (std::int64_t col = 0; col < cols; ++col) {
        const auto pair = std::to_integer<std::uint8_t>(weight[static_cast<std::size_t>(row * (cols / 2) + col / 2)]);
        const auto code = std::to_integer<std::uint8_t>(scales[static_cast<std::size_t>(row * (cols / 16) + col / 16)]);
        sum = std::fma(e2m1(pair, col) * e4m3(code), x[static_cast<std::size_t>(col)], sum);
      }
      y.push_back(sum * alpha);
    }
  }
  y.resize(static_cast<std::size_t>(padded_rows), 0.0F);  // pad rows
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The layer in memory of its own, its sources placed beforehand, and a product that is launched or captured.
class product_bed {
 public:
  product_bed() {
    const std::vector<float> x = inputs();
    x_ = memory().allocate(padded_cols * 4, std::byte{0});
    y_ = memory().allocate(padded_rows * 4, std::byte{0xA5});
    memory().write(x_, x.data(), padded_cols * 4);
    (void)memory().stream(1);
    (void)memory().stream(2);
  }
  product_bed(const product_bed&) = delete;  // owns a graph
  product_bed& operator=(const product_bed&) = delete;
  ~product_bed() {
    (void)cudaDeviceSynchronize();
    if (exec_ != nullptr) (void)cudaGraphExecDestroy(exec_);
    if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
  }

  nvfp4_engine<cuda_executor>& layer() { return layer_; }
  test_memory<cuda_executor>& memory() { return layer_.memory(); }

  using sources = std::vector<std::pair<std::string, tensor_ref>>;
  sources place(const reference::checkpoint& all) {
    sources placed;
    for (const auto& [name, value] : all) placed.emplace_back(name, layer_.place(value));
    return placed;
  }
  /// One complete update that waits for the product's stream, on the device.
  void reload(const sources& all) {
    const stream_ref reader = memory().stream(1);
    update<cuda_executor> open = layer_.start({.stream = memory().stream(2), .readers = {&reader, 1}});
    for (const auto& [name, tensor] : all) must(open.load(name, tensor));
    must(open.finish());
  }

  void capture() {
    WRELOAD_TEST_CUDA(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
    launch();
    WRELOAD_TEST_CUDA(cudaStreamEndCapture(stream(), &graph_));
    WRELOAD_TEST_CUDA(cudaGraphInstantiate(&exec_, graph_, 0));
  }
  std::vector<float> replayed() {
    WRELOAD_TEST_CUDA(cudaGraphLaunch(exec_, stream()));
    return result();
  }
  std::vector<float> launched() {
    launch();
    return result();
  }
  std::vector<const std::byte*> addresses() {
    std::vector<const std::byte*> all;
    for (const param_record& param : layer_.model().params()) all.push_back(param.row(0));
    return all;
  }

 private:
  cudaStream_t stream() { return static_cast<cudaStream_t>(memory().stream(1).handle); }
  void launch() {
    const storage_map map{.swizzled = true, .tile_cols = scale_cols / 4};
    product<<<7, 32, 0, stream()>>>(reinterpret_cast<const std::uint8_t*>(layer_.data("layers.0.weight")),
                                    reinterpret_cast<const std::uint8_t*>(layer_.data("layers.0.weight_scale_interleaved")),
                                    map, reinterpret_cast<const float*>(layer_.data("layers.0.alpha")),
                                    reinterpret_cast<const float*>(x_), reinterpret_cast<float*>(y_));
    WRELOAD_TEST_CUDA(cudaGetLastError());
  }
  std::vector<float> result() {
    WRELOAD_TEST_CUDA(cudaStreamSynchronize(stream()));
    std::vector<float> y(static_cast<std::size_t>(padded_rows));
    memory().read(y.data(), y_, padded_rows * 4);
    return y;
  }

  nvfp4_engine<cuda_executor> layer_{{fused()}};
  std::byte* x_ = nullptr;
  std::byte* y_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
  WRELOAD_TEST_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

}  // namespace

TEST_CASE("cuda: two reloads of an NVFP4 layer under one graph") {
  const std::vector<reference::checkpoint> checkpoints = {
      finite_checkpoint(1, 0.011F, 0.0031F), finite_checkpoint(2, 0.007F, 0.0047F), finite_checkpoint(3, 0.007F, 0.0059F)};
  product_bed tested;
  product_bed cold[3];  // all live at once: other memory
  REQUIRE(tested.layer().bytes("layers.0.weight").size() == padded_rows * padded_cols / 2);
  REQUIRE(tested.layer().bytes("layers.0.weight_scale_interleaved").size() == scale_rows * scale_cols);
  std::vector<std::vector<float>> expected;
  std::vector<product_bed::sources> sources;
  for (std::size_t i = 0; i < 3; ++i) {
    cold[i].reload(cold[i].place(checkpoints[i]));
    expected.push_back(cold[i].launched());
    CHECK(same_bits(expected[i], product_of(checkpoints[i], inputs())));
    for (std::size_t older = 0; older < i; ++older)
      CHECK(cold[i].layer().data("layers.0.weight") != cold[older].layer().data("layers.0.weight"));
    // The last comes without its input scales: the stored ones are the same.
    sources.push_back(tested.place(i == 2 ? named(checkpoints[i], ".input_scale", false) : checkpoints[i]));
  }
  tested.capture();
  const auto addresses = tested.addresses();

  tested.reload(sources[0]);  // warms up, too
  std::vector<float> before = tested.replayed();
  CHECK(same_bits(before, expected[0]));
  const std::int64_t allocated = tested.layer().model().executor().allocated_bytes();
  const std::size_t free_before = free_memory();
  for (std::size_t i = 1; i < 3; ++i) {
    tested.reload(sources[i]);
    const std::vector<float> now = tested.replayed();
    CHECK(same_bits(now, expected[i]));
    std::int64_t equal = 0;
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) equal += now[row] == before[row];
    CHECK(equal == 0);
    before = now;
    CHECK(tested.addresses() == addresses);
    CHECK(tested.layer().model().executor().allocated_bytes() == allocated);
    CHECK(free_memory() == free_before);
    tested.layer().demand_cold(checkpoints[i]);
  }
}

}  // namespace wreload::test
