// How near a device copy landing comes, through model<cuda_executor>, one bucket in device memory and one launch a load:
//
//   60 FP8 matrices (20 layers of 2112 x 7168, 24576 x 1536, 7168 x 16384) into rows of BF16 storage: twice the stride
//   the same bytes as rows of 256 bytes, into every other 256 bytes; and out of every other 256 bytes
//   the same bytes from a flat bucket in which every tensor begins at an odd address
//   3,200 matrices of 512 x 2048 (experts), and 100,000 of 16 x 448, where the number of tensors counts
//   beside them: CUB's batched copy of the same, a copy a row, or a matrix where its rows follow each other
//
// Data is drawn anew over poisoned storage for every repetition and every byte is compared by a plain kernel.
//
//   landing [REPETITIONS]      default 7
#include <string>
#include <vector>

#include <cub/device/device_memcpy.cuh>

#include <wreload/wreload.cuh>

#include "fp8_matrices.cuh"
#include "harness.cuh"

namespace wr = wreload;

namespace {

using bench::demand;
using bench::device_array;

/// A tensor's bytes in the bucket and in the engine; row strides in bytes.
struct place {
  std::string name;
  std::int64_t rows = 0, row_bytes = 0, source_stride = 0, live_stride = 0;
  std::uint8_t* source = nullptr;
  std::uint8_t* live = nullptr;

  std::int64_t bytes() const { return rows * row_bytes; }
};

/// One thread a byte, rows over blocks; shares nothing with the library.
__global__ void count_wrong(const std::uint8_t* source, const std::uint8_t* live, std::int64_t rows, std::int64_t row_bytes,
                            std::int64_t source_stride, std::int64_t live_stride, unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for (std::int64_t byte = threadIdx.x; byte < row_bytes; byte += blockDim.x)
      mine += source[row * source_stride + byte] != live[row * live_stride + byte];
  if (mine != 0) atomicAdd(wrong, mine);
}

class bed {
 public:
  explicit bed(std::int64_t bytes)
      : size_(2 * bytes + (1 << 20)), bucket_(device_array<std::uint8_t>(size_)), live_(device_array<std::uint8_t>(size_)),
        wrong_(device_array<unsigned long long>(1)) {
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    BENCH_CUDA(cudaMemset(wrong_, 0, sizeof *wrong_));
  }
  bed(const bed&) = delete;  // owns device memory for the life of the program
  bed& operator=(const bed&) = delete;

  cudaStream_t stream() const { return stream_; }
  std::uint8_t* bucket() const { return bucket_; }
  std::uint8_t* live() const { return live_; }

  /// Tensors one behind the other in the bucket, `skip` bytes off a multiple of 256, and in live memory.
  std::vector<place> lay(const std::vector<bench::size>& shapes, int layers, std::int64_t source_spread,
                         std::int64_t live_spread, std::int64_t skip = 0) const {
    std::vector<place> all;
    std::int64_t from = 0, to = 0;
    for (int layer = 0; layer < layers; ++layer)
      for (std::size_t which = 0; which < shapes.size(); ++which) {
        place made{"layers." + std::to_string(layer) + ".w" + std::to_string(which), shapes[which].rows, shapes[which].cols,
                   source_spread * shapes[which].cols, live_spread * shapes[which].cols};
        made.source = bucket_ + from + skip;
        made.live = live_ + to;
        from += (made.rows * made.source_stride + 511) / 256 * 256;
        to += (made.rows * made.live_stride + 255) / 256 * 256;
        all.push_back(made);
      }
    if (from > size_ || to > size_) std::exit(2);
    return all;
  }

  void draw() {
    bench::random_bytes<<<2048, 256, 0, stream_>>>(reinterpret_cast<std::uint64_t*>(bucket_),
                                                   static_cast<std::uint64_t>(size_ / 8 * 8), ++seed_);
    BENCH_CUDA(cudaMemsetAsync(live_, 0xA5, static_cast<std::size_t>(size_), stream_));
  }
  void check(const std::vector<place>& all) {
    for (const place& each : all)
      count_wrong<<<1024, 256, 0, stream_>>>(each.source, each.live, each.rows, each.row_bytes, each.source_stride,
                                             each.live_stride, wrong_);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaStreamSynchronize(stream_));
  }
  std::int64_t wrong() const {
    unsigned long long count = 0;
    BENCH_CUDA(cudaMemcpy(&count, wrong_, sizeof count, cudaMemcpyDeviceToHost));
    return static_cast<std::int64_t>(count);
  }

 private:
  std::int64_t size_;
  std::uint8_t* bucket_;
  std::uint8_t* live_;
  unsigned long long* wrong_;
  cudaStream_t stream_ = nullptr;
  std::uint64_t seed_ = 0;
};

std::int64_t bytes_of(const std::vector<place>& all) {
  std::int64_t bytes = 0;
  for (const place& each : all) bytes += each.bytes();
  return bytes;
}

/// Median seconds of landing all of them in one load.
double landing(bed& on, const std::vector<place>& all, int repetitions) {
  wr::model<wr::cuda_executor> model;
  std::vector<wr::piece> pieces;
  for (const place& each : all) {
    demand(model.add<wr::Plain>(each.name,
                                wr::extents::tensor(each.name, {each.rows, each.row_bytes}, wr::dtype::fp8_e4m3),
                                wr::storage(each.live, each.live_stride)));
    wr::tensor_ref tensor{each.source, wr::dtype::fp8_e4m3, {each.rows, each.row_bytes}};
    tensor.memory = wr::memory_kind::device;
    if (each.source_stride != each.row_bytes) tensor.strides = {each.source_stride, 1};
    pieces.push_back({.name = each.name, .tensor = tensor});
  }
  demand(model.seal());
  std::vector<double> seconds;
  for (int i = -3; i < repetitions; ++i) {
    on.draw();
    wr::status refused;
    auto update = model.start({.stream = {on.stream()}}, &refused);
    demand(refused);
    const double time = bench::device_seconds(on.stream(), [&] { demand(update.load(pieces)); },
                                              2'000'000 + 2'000 * pieces.size());
    if (update.report().launches > 1) std::printf("%lld launches\n", static_cast<long long>(update.report().launches));
    demand(update.finish());
    on.check(all);
    if (i >= 0) seconds.push_back(time);
  }
  return bench::median(seconds);
}

/// CUB's batched copy of the same: a buffer a row, or a matrix where its rows follow each other on both sides.
double batched_copy(bed& on, const std::vector<place>& all, int repetitions) {
  std::vector<const void*> from;
  std::vector<void*> to;
  std::vector<std::uint32_t> sizes;
  for (const place& each : all) {
    const bool is_dense = each.source_stride == each.row_bytes && each.live_stride == each.row_bytes;
    for (std::int64_t row = 0; row < (is_dense ? 1 : each.rows); ++row) {
      from.push_back(each.source + row * each.source_stride);
      to.push_back(each.live + row * each.live_stride);
      sizes.push_back(static_cast<std::uint32_t>(is_dense ? each.bytes() : each.row_bytes));
    }
  }
  const auto count = static_cast<std::int64_t>(from.size());
  auto** sources = device_array<const void*>(count);
  auto** destinations = device_array<void*>(count);
  auto* lengths = device_array<std::uint32_t>(count);
  BENCH_CUDA(cudaMemcpy(sources, from.data(), from.size() * sizeof from[0], cudaMemcpyHostToDevice));
  BENCH_CUDA(cudaMemcpy(destinations, to.data(), to.size() * sizeof to[0], cudaMemcpyHostToDevice));
  BENCH_CUDA(cudaMemcpy(lengths, sizes.data(), sizes.size() * sizeof sizes[0], cudaMemcpyHostToDevice));
  std::size_t scratch_bytes = 0;
  BENCH_CUDA(cub::DeviceMemcpy::Batched(nullptr, scratch_bytes, sources, destinations, lengths, count, on.stream()));
  auto* scratch = device_array<std::uint8_t>(static_cast<std::int64_t>(scratch_bytes));
  std::vector<double> seconds;
  for (int i = -2; i < repetitions; ++i) {
    on.draw();
    const double time = bench::device_seconds(on.stream(), [&] {
      BENCH_CUDA(cub::DeviceMemcpy::Batched(scratch, scratch_bytes, sources, destinations, lengths, count, on.stream()));
    });
    on.check(all);
    if (i >= 0) seconds.push_back(time);
  }
  for (void* each : {static_cast<void*>(sources), static_cast<void*>(destinations), static_cast<void*>(lengths),
                     static_cast<void*>(scratch)})
    BENCH_CUDA(cudaFree(each));
  return bench::median(seconds);
}

}  // namespace

int main(int argc, char** argv) {
  if (!bench::has_device()) return 77;
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 7;
  const std::vector<bench::size> shapes(std::begin(bench::shapes), std::end(bench::shapes));
  std::int64_t bytes = 0;
  for (const bench::size& each : shapes) bytes += 20 * each.rows * each.cols;
  bed on(bytes);
  bench::table rows;

  std::vector<double> copies;
  for (int i = -3; i < repetitions; ++i) {
    on.draw();
    const double time = bench::device_seconds(on.stream(), [&] {
      BENCH_CUDA(cudaMemcpyAsync(on.live(), on.bucket(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                                 on.stream()));
    });
    if (i >= 0) copies.push_back(time);
  }
  const double copy_rate = 2 * static_cast<double>(bytes) / bench::median(copies);
  rows.add("device copy (cudaMemcpyAsync)", bench::median(copies), 2 * static_cast<double>(bytes), 1);
  const auto add = [&](const std::string& name, const std::vector<place>& all, double seconds) {
    const double moved = 2 * static_cast<double>(bytes_of(all));
    rows.add(name, seconds, moved, moved / seconds / copy_rate);
  };

  const auto strided = on.lay(shapes, 20, 1, 2);
  add("60 strided matrices", strided, landing(on, strided, repetitions));
  add("60 strided matrices: CUB batched, a copy a row", strided, batched_copy(on, strided, repetitions));
  const std::vector<bench::size> narrow{{bytes / 20 / 3 / 256, 256}, {bytes / 20 / 3 / 256, 256}, {bytes / 20 / 3 / 256, 256}};
  const auto scattered = on.lay(narrow, 20, 1, 2);
  add("256-byte runs, into every other 256 bytes", scattered, landing(on, scattered, repetitions));
  const auto gathered = on.lay(narrow, 20, 2, 1);
  add("256-byte runs, out of every other 256 bytes", gathered, landing(on, gathered, repetitions));
  const auto odd = on.lay(shapes, 20, 1, 2, 5);
  add("byte-misaligned bucket", odd, landing(on, odd, repetitions));
  const auto experts = on.lay({{512, 2048}}, 3200, 1, 1);
  add("3,200 matrices of 512 x 2048", experts, landing(on, experts, repetitions));
  add("3,200 matrices: CUB batched, a copy a matrix", experts, batched_copy(on, experts, repetitions));
  const auto small = on.lay({{16, 448}}, 100'000, 1, 1);
  add("100,000 matrices of 16 x 448", small, landing(on, small, repetitions));
  add("100,000 matrices: CUB batched, a copy a matrix", small, batched_copy(on, small, repetitions));

  const bool verified = on.wrong() == 0;
  std::printf("%s: %lld wrong bytes\n", verified ? "verified" : "FAILED", static_cast<long long>(on.wrong()));
  rows.print(verified);
  return verified ? 0 : 1;
}
