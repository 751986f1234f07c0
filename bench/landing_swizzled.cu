// How near a device copy the landing of block scales in kernel order comes: one layer of Kimi-K2.5, NVFP4, no tensor
// parallelism, 384 experts of gate and up [2048, 448] and down [7168, 128] e4m3, out of one device bucket through
// model<cuda_executor>, for CUTLASS and for TensorRT-LLM. The layer is loaded whole once; then its scales alone, drawn
// anew over poisoned storage for every repetition, and every byte is compared with formulas written here.
//
//   landing_swizzled [REPETITIONS] [EXPERTS]      default 11 and 384
//
// Rates count two bytes a scale, read and written.
#include <string>
#include <string_view>
#include <vector>

#include <wreload/wreload.cuh>

#include "harness.cuh"

namespace wr = wreload;

namespace {

using bench::demand;
using bench::device_array;
using bench::seconds_now;

constexpr std::int64_t hidden = 7168, width = 2048;
constexpr std::int64_t w13_cols = hidden / 16, w2_cols = width / 16;           // scales a row
constexpr std::int64_t half_bytes = width * w13_cols, w2_bytes = hidden * w2_cols;  // of one expert
constexpr std::int64_t expert_bytes = 2 * half_bytes + w2_bytes;
constexpr std::string_view modules[] = {"gate_proj", "up_proj", "down_proj"};
constexpr std::int64_t bucket_offsets[] = {0, half_bytes, 2 * half_bytes};  // an expert's modules follow one another

enum class order { cutlass, trtllm };

/// Where a kernel of the order looks for row `row` of a matrix; `half` is 0 for up, 1 for gate, -1 for down.
__device__ std::int64_t plain_row(order to, int half, std::int64_t row) {
  if (to == order::cutlass) return half == 1 ? width + row : row;
  if (half < 0) return 32 * (row / 32) + 8 * (row % 4) + row % 32 / 4;
  return 32 * (row / 16) + 16 * (row % 2) + 8 * half + row % 16 / 2;
}

/// The scales of one kind of module against those in the bucket; shares nothing with the library.
///
///   bucket  [experts, expert_bytes]
///   stored  [experts, stored_bytes]  128x4 order per expert
__global__ void count_wrong(const std::uint8_t* bucket, const std::uint8_t* stored, std::int64_t offset, std::int64_t rows,
                            std::int64_t cols, std::int64_t stored_bytes, order to, int half, std::int64_t experts,
                            unsigned long long* wrong) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < experts * rows * cols; i += stride) {
    const std::int64_t expert = i / (rows * cols), within = i % (rows * cols), col = within % cols;
    const std::int64_t row = plain_row(to, half, within / cols);
    const std::int64_t at = (row / 128 * (cols / 4) + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
    mine += stored[expert * stored_bytes + at] != bucket[expert * expert_bytes + offset + within];
  }
  if (mine != 0) atomicAdd(wrong, mine);
}

/// What a layer is loaded from: scales in one bucket; one matrix of weights and one scalar for all experts.
struct sources {
  std::uint8_t* bucket = nullptr;
  std::uint8_t* weight = nullptr;
  float* scalar = nullptr;
  std::int64_t experts = 0;

  explicit sources(std::int64_t count) : experts(count) {
    bucket = device_array<std::uint8_t>(count * expert_bytes);
    weight = device_array<std::uint8_t>(width * hidden / 2);
    scalar = device_array<float>(1);
    const float one = 1;
    BENCH_CUDA(cudaMemset(weight, 0x21, static_cast<std::size_t>(width * hidden / 2)));
    BENCH_CUDA(cudaMemcpy(scalar, &one, sizeof one, cudaMemcpyHostToDevice));
    BENCH_CUDA(cudaDeviceSynchronize());
  }
  sources(const sources&) = delete;  // owns device memory
  sources& operator=(const sources&) = delete;
  ~sources() {
    (void)cudaFree(bucket);
    (void)cudaFree(weight);
    (void)cudaFree(scalar);
  }
};

struct timing {
  double device = 0;  ///< seconds of the landing
  double host = 0;    ///< seconds of the call to `load`
  std::int64_t launches = 0;
};

/// Which scales an update brings.
enum class part { w13, w2, both };

/// One layer in one order.
class bed {
 public:
  template <class Layout>
  bed(Layout, order to, const sources& from, cudaStream_t stream) : to_(to), from_(from), stream_(stream) {
    const wr::extents sizes{.shards = {{.module = "gate_proj", .rows = width, .cols = hidden / 2},
                                       {.module = "up_proj", .rows = width, .cols = hidden / 2},
                                       {.module = "down_proj", .rows = hidden, .cols = width / 2}},
                            .experts = wr::expert_slots::all(from.experts)};
    wr::status refused;
    std::vector<wr::storage> places;
    for (const wr::storage_need& need : wr::storage_plan<Layout>("mlp.experts", sizes, &refused)) {
      allocations_.push_back(device_array<std::uint8_t>(need.bytes));
      places.emplace_back(allocations_.back());
      if (need.name.ends_with("w13_blockscale_swizzled")) w13_ = {allocations_.back(), need.bytes};
      if (need.name.ends_with("w2_blockscale_swizzled")) w2_ = {allocations_.back(), need.bytes};
    }
    demand(refused);
    demand(model_.add(Layout::specs, "mlp.experts", sizes, places));
    demand(model_.seal());
    wrong_ = device_array<unsigned long long>(1);
    BENCH_CUDA(cudaMemset(wrong_, 0, sizeof *wrong_));
    if (w13_.bytes != from.experts * 2 * half_bytes || w2_.bytes != from.experts * w2_bytes) {
      std::fprintf(stderr, "the layout stores another number of scales than the checkpoint has\n");
      std::exit(1);
    }
    for (std::int64_t expert = 0; expert < from.experts; ++expert)
      for (const std::string_view module : modules)
        prefixes_.push_back("mlp.experts." + std::to_string(expert) + "." + std::string(module));
    for (const std::string& prefix : prefixes_) scale_names_.push_back(prefix + ".weight_scale");
    load_all();
  }
  bed(const bed&) = delete;  // owns device memory
  bed& operator=(const bed&) = delete;
  ~bed() {
    for (std::uint8_t* each : allocations_) (void)cudaFree(each);
    (void)cudaFree(wrong_);
  }

  /// New random scales, poison where they go, one partial update; everything that it brought is checked.
  timing run(part which, std::uint64_t seed) {
    bench::random_bytes<<<2048, 256, 0, stream_>>>(reinterpret_cast<std::uint64_t*>(from_.bucket),
                                                   static_cast<std::uint64_t>(from_.experts * expert_bytes), seed);
    if (which != part::w2) BENCH_CUDA(cudaMemsetAsync(w13_.data, 0xA5, static_cast<std::size_t>(w13_.bytes), stream_));
    if (which != part::w13) BENCH_CUDA(cudaMemsetAsync(w2_.data, 0xA5, static_cast<std::size_t>(w2_.bytes), stream_));
    std::vector<wr::piece> pieces;
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < scale_names_.size(); ++i) {
      const bool is_w2 = i % 3 == 2;
      if (which == (is_w2 ? part::w13 : part::w2)) continue;
      pieces.push_back({.name = scale_names_[i], .tensor = scales(i)});
      names.push_back(scale_names_[i]);
    }
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    timing found;
    wr::status refused;
    auto update = model_.start({.scope = wr::update_scope::partial(names), .stream = {stream_}}, &refused);
    demand(refused);
    bench::hold<<<1, 1, 0, stream_>>>(hold_nanoseconds);  // the host has over a thousand pieces to look up
    found.device = bench::device_seconds(stream_, [&] {
      const double begin = seconds_now();
      demand(update.load(pieces));
      found.host = seconds_now() - begin;
    });
    if (found.host * 1e9 > hold_nanoseconds) std::printf("    the host was late: this timing is not the device's\n");
    demand(update.finish());
    found.launches = update.report().launches;
    if (which != part::w2) {
      check_part(w13_, bucket_offsets[0], width, w13_cols, 1);
      check_part(w13_, bucket_offsets[1], width, w13_cols, 0);
    }
    if (which != part::w13) check_part(w2_, bucket_offsets[2], hidden, w2_cols, -1);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    return found;
  }

  std::int64_t bytes(part which) const {
    return (which != part::w2 ? w13_.bytes : 0) + (which != part::w13 ? w2_.bytes : 0);
  }
  std::int64_t wrong() const {
    unsigned long long count = 0;
    BENCH_CUDA(cudaMemcpy(&count, wrong_, sizeof count, cudaMemcpyDeviceToHost));
    return static_cast<std::int64_t>(count);
  }

 private:
  struct place {
    std::uint8_t* data = nullptr;
    std::int64_t bytes = 0;
  };
  static constexpr std::uint64_t hold_nanoseconds = 40'000'000;

  wr::tensor_ref scales(std::size_t i) const {
    const std::int64_t rows = i % 3 == 2 ? hidden : width, cols = i % 3 == 2 ? w2_cols : w13_cols;
    return {.data = from_.bucket + static_cast<std::int64_t>(i / 3) * expert_bytes + bucket_offsets[i % 3],
            .type = wr::dtype::fp8_e4m3, .extents = {rows, cols}, .memory = wr::memory_kind::device};
  }
  void load_all() {
    std::vector<std::string> names;
    std::vector<wr::tensor_ref> tensors;
    for (std::size_t i = 0; i < prefixes_.size(); ++i) {
      const std::int64_t rows = i % 3 == 2 ? hidden : width, cols = i % 3 == 2 ? width / 2 : hidden / 2;
      names.push_back(prefixes_[i] + ".weight");
      tensors.push_back({.data = from_.weight, .type = wr::dtype::u8, .extents = {rows, cols},
                         .memory = wr::memory_kind::device});
      names.push_back(scale_names_[i]);
      tensors.push_back(scales(i));
      for (const char* scalar : {".weight_scale_2", ".input_scale"}) {
        names.push_back(prefixes_[i] + scalar);
        tensors.push_back({.data = from_.scalar, .type = wr::dtype::fp32, .extents = {},
                           .memory = wr::memory_kind::device});
      }
    }
    std::vector<wr::piece> pieces;
    for (std::size_t i = 0; i < names.size(); ++i) pieces.push_back({.name = names[i], .tensor = tensors[i]});
    wr::status refused;
    auto update = model_.start({.stream = {stream_}}, &refused);
    demand(refused);
    demand(update.load(pieces));
    demand(update.finish());
  }
  void check_part(const place& stored, std::int64_t offset, std::int64_t rows, std::int64_t cols, int half) {
    count_wrong<<<2048, 256, 0, stream_>>>(from_.bucket, stored.data, offset, rows, cols, stored.bytes / from_.experts, to_,
                                           half, from_.experts, wrong_);
  }

  order to_;
  const sources& from_;
  cudaStream_t stream_;
  wr::model<wr::cuda_executor> model_;
  std::vector<std::uint8_t*> allocations_ = {};
  place w13_ = {}, w2_ = {};
  std::vector<std::string> prefixes_ = {}, scale_names_ = {};
  unsigned long long* wrong_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (!bench::has_device()) return 77;
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 11;
  const std::int64_t experts = argc > 2 ? std::atoi(argv[2]) : 384;
  cudaDeviceProp device = {};
  BENCH_CUDA(cudaGetDeviceProperties(&device, 0));
  cudaStream_t stream = nullptr;
  BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const sources from(experts);
  std::printf("%s, %d multiprocessors, L2 %d MB; %lld experts, %.3f GB of scales; medians of %d\n", device.name,
              device.multiProcessorCount, device.l2CacheSize >> 20, static_cast<long long>(experts),
              static_cast<double>(experts * expert_bytes) * 1e-9, repetitions);
  bench::table rows;

  double copy_rate = 0;
  {
    const std::int64_t bytes = experts * expert_bytes;
    auto* to = device_array<std::uint8_t>(bytes);
    std::vector<double> copies;
    for (int i = -2; i < repetitions; ++i) {
      bench::random_bytes<<<2048, 256, 0, stream>>>(reinterpret_cast<std::uint64_t*>(from.bucket),
                                                    static_cast<std::uint64_t>(bytes), 1000 + static_cast<std::uint64_t>(i + 2));
      const double copy = bench::device_seconds(stream, [&] {
        BENCH_CUDA(cudaMemcpyAsync(to, from.bucket, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
      });
      if (i >= 0) copies.push_back(copy);
    }
    const double moved = 2 * static_cast<double>(bytes);
    copy_rate = moved / bench::median(copies);
    rows.add("device copy (cudaMemcpyAsync)", bench::median(copies), moved, 1);
    BENCH_CUDA(cudaFree(to));
  }

  std::int64_t wrong = 0;
  std::uint64_t seed = 0;
  const auto measure = [&](const std::string& name, auto layout, order to) {
    bed tested(layout, to, from, stream);
    const auto measure_part = [&](const std::string& what, part which) {
      std::vector<double> landings, hosts;
      std::int64_t launches = 0;
      for (int i = -2; i < repetitions; ++i) {
        const timing found = tested.run(which, ++seed);
        launches = found.launches;
        if (i < 0) continue;
        landings.push_back(found.device);
        hosts.push_back(found.host);
      }
      const double moved = 2 * static_cast<double>(tested.bytes(which)), time = bench::median(landings);
      rows.add(name + ": " + what, time, moved, moved / time / copy_rate);
      std::printf("    %lld launches; the call took the host %.3f ms\n", static_cast<long long>(launches),
                  bench::median(hosts) * 1e3);
    };
    measure_part("all block scales", part::both);
    measure_part("w13 alone", part::w13);
    measure_part("w2 alone", part::w2);
    wrong += tested.wrong();
  };
  measure("CUTLASS order", wr::Nvfp4Moe{}, order::cutlass);
  measure("TensorRT-LLM order", wr::Nvfp4MoeTrtllm{}, order::trtllm);

  const bool verified = wrong == 0;
  std::printf("%s: %lld wrong bytes\n", verified ? "verified" : "FAILED", static_cast<long long>(wrong));
  rows.print(verified);
  return verified ? 0 : 1;
}
