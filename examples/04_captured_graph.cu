// A CUDA graph that was captured once goes on reading new weights: the addresses it has baked in never change.
//
// The layer is 256 x 384 in BF16; the graph multiplies it with a vector. The weights come as block FP8, twice; the
// graph is captured before any of them and replayed after each. Exit 77 where there is no GPU.

#include <cuda_runtime.h>

#include <wreload/wreload.cuh>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace wr = wreload;

constexpr int rows = 256, cols = 384;

// An engine's kernel: y = W x, one row a thread.
//
//   weight  [rows, cols]  bf16
//   x       [cols]        fp32
//   y       [rows]        fp32
__global__ void multiply(const std::uint16_t* weight, const float* x, float* y) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= rows) return;
  float sum = 0;
  for (int col = 0; col < cols; ++col) sum += __uint_as_float(std::uint32_t{weight[row * cols + col]} << 16) * x[col];
  y[row] = sum;
}

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  const bool absent = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver;
  std::printf("%s%s\n", absent ? "skipped: " : "", cudaGetErrorString(error));
  std::exit(absent ? 77 : 1);
}

void check(const wr::status& error) {
  if (error.ok()) return;
  std::printf("%s\n", error.message().c_str());
  std::exit(1);
}

template <class T>
T* device_memory(std::size_t size) {  // the process ends before anyone would free it
  T* data = nullptr;
  check(cudaMalloc(&data, size * sizeof(T)));
  return data;
}

int main() {
  auto* weight = device_memory<std::uint16_t>(rows * cols);
  auto* scale = device_memory<float>(2 * 3);
  auto* x = device_memory<float>(cols);
  auto* y = device_memory<float>(rows);
  const std::vector<float> ones(cols, 1.0F);
  check(cudaMemcpy(x, ones.data(), cols * sizeof(float), cudaMemcpyHostToDevice));
  check(cudaDeviceSynchronize());  // the streams below wait for no other

  wr::model<wr::cuda_executor> model;
  check(model.add<wr::Fp8DequantLinear>("layer", wr::extents::matrix("layer", rows, cols), weight, scale));
  check(model.seal());

  // Captured once. Nothing runs yet, and the weights need not be there.
  cudaStream_t serving = nullptr, updating = nullptr;
  check(cudaStreamCreateWithFlags(&serving, cudaStreamNonBlocking));
  check(cudaStreamCreateWithFlags(&updating, cudaStreamNonBlocking));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t forward = nullptr;
  check(cudaStreamBeginCapture(serving, cudaStreamCaptureModeGlobal));
  multiply<<<(rows + 127) / 128, 128, 0, serving>>>(weight, x, y);
  check(cudaStreamEndCapture(serving, &graph));
  check(cudaGraphInstantiate(&forward, graph, 0));

  // Loads FP8 codes and one multiplier per 128 x 128 block, then replays the graph. The first write waits, on the
  // device, for what `serving` has queued; the replay waits there for the last one. The host waits only in `publish`.
  const auto reload = [&](std::uint8_t code, const std::vector<float>& multipliers) {
    const std::vector<std::uint8_t> codes(rows * cols, code);
    const wr::stream_ref readers[] = {{serving}};
    wr::status error;
    auto update = model.start({.stream = {updating}, .readers = readers}, &error);
    check(error);
    check(update.load("layer.weight", {codes.data(), wr::dtype::fp8_e4m3, {rows, cols}}));
    check(update.load("layer.weight_scale_inv", {multipliers.data(), wr::dtype::fp32, {2, 3}}));
    check(update.prepare());
    wr::event_ref done;
    check(update.commit(&done));
    check(cudaStreamWaitEvent(serving, static_cast<cudaEvent_t>(done.handle), 0));
    check(cudaGraphLaunch(forward, serving));  // already the new weights
    check(update.publish());
  };
  // Prints the first and last product, and whether they are right.
  const auto is_right = [&](float first, float last) {
    std::vector<float> products(rows);
    check(cudaMemcpyAsync(products.data(), y, rows * sizeof(float), cudaMemcpyDeviceToHost, serving));
    check(cudaStreamSynchronize(serving));
    std::printf("version %lld: the graph computes %g ... %g, expected %g ... %g\n",
                static_cast<long long>(model.version()), static_cast<double>(products.front()),
                static_cast<double>(products.back()), static_cast<double>(first), static_cast<double>(last));
    return products.front() == first && products.back() == last;
  };

  reload(0x38, {1, 2, 3, 4, 5, 6});  // 0x38 is 1.0
  bool right = is_right(128 * (1 + 2 + 3), 128 * (4 + 5 + 6));
  reload(0x40, {1, 1, 1, 0.5F, 0.5F, 0.5F});  // 0x40 is 2.0
  right &= is_right(2 * 384, 384);
  std::printf("%s: one graph, captured once, two sets of weights at %p\n", right ? "right" : "WRONG",
              static_cast<const void*>(weight));
  return right ? 0 : 1;
}
