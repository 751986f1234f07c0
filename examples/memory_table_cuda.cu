// memory_table.cpp, and its figure for one layer checked on a GPU: the routed experts of one Kimi-K2.5 layer at tensor
// parallel 4 are allocated as storage_plan says, tensor by tensor, and cudaMemGetInfo says what that took. Exit 77 where
// there is no GPU or too little free memory.

#include <cuda_runtime.h>

#include <wreload/wreload.cuh>

#define main print_memory_table  // the table itself, with its layers
#include "memory_table.cpp"
#undef main

namespace {

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  const bool absent = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver;
  std::printf("%s%s\n", absent ? "skipped: " : "", cudaGetErrorString(error));
  std::exit(absent ? 77 : 1);
}

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

}  // namespace

int main() {
  if (const int failed = print_memory_table(); failed != 0) return failed;

  const wr::extents sizes = routed_experts();
  const std::int64_t planned = bytes_of_layer<wr::Nvfp4Moe>(sizes).landed;
  wr::status error;
  const std::vector<wr::storage_need> needs = wr::storage_plan<wr::Nvfp4Moe>("mlp.experts", sizes, &error);
  must(error);

  check(cudaFree(nullptr));  // the context's own memory comes first
  const std::int64_t free_before = free_bytes();
  if (free_before < planned + (std::int64_t{1} << 30)) {
    std::printf("skipped: %lld bytes free, the layer takes %lld\n", static_cast<long long>(free_before),
                static_cast<long long>(planned));
    return 77;
  }
  std::vector<wr::storage> places;
  for (const wr::storage_need& need : needs) {  // the process ends before anyone would free them
    void* data = nullptr;
    check(cudaMalloc(&data, static_cast<std::size_t>(need.bytes)));
    places.emplace_back(data);
  }
  const std::int64_t taken = free_before - free_bytes();

  // cudaMalloc takes memory in steps of 2 MiB; small tensors may share a step, also one that was there before.
  const std::int64_t tolerance = (std::int64_t{2} << 20) * static_cast<std::int64_t>(needs.size());
  const std::int64_t difference = taken - planned;
  const bool agrees = difference <= tolerance && -difference <= tolerance;
  std::printf("\nThe same layer on the GPU, %zu tensors:\n", needs.size());
  std::printf("  the table has  %13lld bytes\n", static_cast<long long>(planned));
  std::printf("  the GPU gave   %13lld bytes, %+lld: %s (2 MiB a tensor are allowed)\n", static_cast<long long>(taken),
              static_cast<long long>(difference), agrees ? "agrees" : "DIFFERS");

  wr::model<wr::cuda_executor> model;  // and the layer can be registered there
  must(model.add(wr::Nvfp4Moe::specs, "mlp.experts", sizes, places));
  must(model.seal());
  std::printf("  registered; the model itself keeps %lld bytes on the device\n",
              static_cast<long long>(model.executor().allocated_bytes()));
  return agrees ? 0 : 1;
}
