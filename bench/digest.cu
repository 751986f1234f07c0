// How near a plain read the digest of a model comes: 60 FP8 matrices (20 layers, shapes as in fp8_matrices.cuh) and 60 in
// BF16, by the kernel's launch and as a caller of model::digests gets them by the host's clock; 278,000 tensors of 16 bytes;
// and what digests cost as a by-product of landing. Every digest is compared with a kernel that adds up bytes from the
// definition.
//
//   digest [REPETITIONS] [LAYERS]      default 11 and 20
#include <string>
#include <string_view>
#include <vector>

#include <wreload/wreload.cuh>

#include "fp8_matrices.cuh"

namespace {

using bench::demand;
using bench::device_array;
using bench::seconds_now;
namespace wr = wreload;

/// The yardstick: reads with 16-byte loads, eight in flight, and adds up what it read. The faster of two orders counts: each
/// block a piece of its own, or all of them side by side through the whole.
__global__ void __launch_bounds__(256) read_all(const uint4* vectors, std::uint64_t count, bool is_by_block, std::uint32_t* total) {
  constexpr int depth = 8;
  std::uint32_t sum = 0;
  const std::uint64_t blocks = gridDim.x, threads = blockDim.x;
  const std::uint64_t apart = is_by_block ? threads : blocks * threads;
  std::uint64_t first = blockIdx.x * threads * (is_by_block ? depth : 1) + threadIdx.x;
  for (; first < count; first += depth * blocks * threads) {
    uint4 read[depth] = {};
#pragma unroll
    for (int i = 0; i < depth; ++i)
      if (first + i * apart < count) read[i] = vectors[first + i * apart];
#pragma unroll
    for (int i = 0; i < depth; ++i) sum += read[i].x ^ read[i].y ^ read[i].z ^ read[i].w;
  }
  if (sum == 0x12345678) atomicAdd(total, 1U);  // keeps the reads
}

__device__ std::uint64_t plain_weight(std::uint64_t counter) {
  std::uint64_t z = (counter + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
  z = (z ^ z >> 27) * 0x94D049BB133111EBU;
  return (z ^ z >> 31) | 1;
}

/// The digest of each tile, byte by byte; one block a tile, blockIdx.x across. `sums` begin at 0.
__global__ void plain_digests(const std::uint8_t* matrix, std::int64_t rows, std::int64_t row_bytes, int element,
                              unsigned long long* sums) {
  const std::int64_t tile_bytes = 4096 * element, first_row = 256 * std::int64_t{blockIdx.y}, first = blockIdx.x * tile_bytes;
  const std::int64_t wide = min(tile_bytes, row_bytes - first), tall = min(std::int64_t{256}, rows - first_row);
  unsigned long long sum = 0;
  for (std::int64_t i = threadIdx.x; i < wide * tall; i += blockDim.x) {
    const std::int64_t row = i / wide, byte = i % wide;
    const std::uint64_t value = std::uint64_t{matrix[(first_row + row) * row_bytes + first + byte]} << (8 * (byte % 2));
    sum += plain_weight(4294967296ULL + static_cast<std::uint64_t>(row)) * plain_weight(static_cast<std::uint64_t>(byte / 2)) * value;
  }
  atomicAdd(&sums[std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x], sum);
}

/// Matrices of one dtype in one model: storage side by side, and as much of it to land from.
class bed {
 public:
  bed(int layers, wr::dtype type, cudaStream_t stream) : type_(type), element_(static_cast<int>(wr::bytes_of(type))), stream_(stream) {
    for (int i = 0; i < layers; ++i)
      for (const bench::size& each : bench::shapes) {
        sizes_.push_back(each);
        names_.push_back("layers." + std::to_string(i) + ".w" + std::to_string(sizes_.size()));
        offsets_.push_back(bytes_);
        bytes_ += each.rows * each.cols * element_;
        tiles_ += (each.rows + 255) / 256 * ((each.cols + 4095) / 4096);
      }
    live_ = device_array<std::uint8_t>(bytes_);
    source_ = device_array<std::uint8_t>(bytes_);
    sums_ = device_array<unsigned long long>(tiles_);
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const wr::storage place(live_ + offsets_[i]);
      demand(model_.add(wr::Plain::specs, names_[i], wr::extents::tensor(names_[i], {sizes_[i].rows, sizes_[i].cols}, type), {&place, 1}));
    }
    demand(model_.seal());
  }
  bed(const bed&) = delete;  // owns device memory
  bed& operator=(const bed&) = delete;
  ~bed() {
    for (void* each : {static_cast<void*>(live_), static_cast<void*>(source_), static_cast<void*>(sums_)}) (void)cudaFree(each);
  }

  double bytes() const { return static_cast<double>(bytes_); }
  std::int64_t tiles() const { return tiles_; }

  void draw(std::uint64_t seed) {
    bench::random_bytes<<<2048, 256, 0, stream_>>>(reinterpret_cast<std::uint64_t*>(source_), static_cast<std::uint64_t>(bytes_), seed);
    BENCH_CUDA(cudaMemsetAsync(live_, 0xA5, static_cast<std::size_t>(bytes_), stream_));
    BENCH_CUDA(cudaStreamSynchronize(stream_));
  }
  double copy() {
    return bench::device_seconds(stream_, [&] {
      BENCH_CUDA(cudaMemcpyAsync(live_, source_, static_cast<std::size_t>(bytes_), cudaMemcpyDeviceToDevice, stream_));
    });
  }
  double read(bool is_by_block) {
    const auto vectors = static_cast<std::uint64_t>(bytes_ / 16);
    const unsigned blocks = is_by_block ? static_cast<unsigned>((vectors + 8 * 256 - 1) / (8 * 256)) : 132 * 8;
    return bench::device_seconds(stream_, [&] {
      read_all<<<blocks, 256, 0, stream_>>>(reinterpret_cast<const uint4*>(live_), vectors, is_by_block,
                                             reinterpret_cast<std::uint32_t*>(sums_));
      BENCH_CUDA(cudaGetLastError());
    });
  }

  /// One update; seconds of the device while it loads. `host`: of prepare, which reads the sums.
  double land(bool digests, double* host) {
    std::vector<wr::piece> pieces;
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      pieces.push_back({.name = names_[i],
                        .tensor = {.data = source_ + offsets_[i], .type = type_, .extents = {sizes_[i].rows, sizes_[i].cols},
                                   .memory = wr::memory_kind::device}});
    wr::status refused;
    auto update = model_.start({.stream = {stream_}, .digest_landed = digests}, &refused);
    demand(refused);
    const double time = bench::device_seconds(stream_, [&] { demand(update.load(pieces)); });
    const double begin = seconds_now();
    demand(update.prepare());
    *host = seconds_now() - begin;
    if (digests) {
      wr::digest_list landed;
      demand(update.landed_digests(&landed));
      count_wrong(landed);
    }
    demand(update.finish());
    return time;
  }

  /// As a caller gets them; seconds by the host's clock.
  double digest() {
    wr::digest_list list;
    const double begin = seconds_now();
    demand(model_.digests(&list));
    const double time = seconds_now() - begin;
    count_wrong(list);
    return time;
  }
  /// The kernel's launch by events. (Around `model::digests` they would show when the host has woken up.)
  double digest_by_device() {
    using choice = wr::tuning::digest_tiles;
    auto* sums = reinterpret_cast<std::uint64_t*>(sums_);
    std::vector<wr::kernel::digest_task> tasks;
    wr::kernel::work<wr::kernel::digest_task> todo;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const wr::digest_job job{.data = reinterpret_cast<std::byte*>(live_ + offsets_[i]), .rows = sizes_[i].rows, .cols = sizes_[i].cols,
                               .row_stride_bytes = sizes_[i].cols * element_, .element_bytes = element_};
      const wr::digest_grid grid = wr::digest_grid_of(job);
      tasks.push_back(wr::kernel::make_task(job, nullptr, nullptr, sums + first, grid.across));
      tasks.back().first_unit = todo.units;
      todo.units += static_cast<std::uint32_t>(tasks.back().units());
      first += grid.tiles();
    }
    const std::size_t table_bytes = tasks.size() * sizeof tasks[0], counter_bytes = wr::kernel::counter::words * sizeof(std::uint32_t);
    auto* table = device_array<std::byte>(static_cast<std::int64_t>(table_bytes + counter_bytes));
    std::uint32_t* words = nullptr;  // the launch's state, and the epoch
    BENCH_CUDA(cudaMallocHost(&words, 2 * sizeof *words));
    words[0] = wr::launch_state::queued;
    words[1] = 0;
    BENCH_CUDA(cudaMemcpyAsync(table, tasks.data(), table_bytes, cudaMemcpyHostToDevice, stream_));
    BENCH_CUDA(cudaMemsetAsync(table + table_bytes, 0, counter_bytes, stream_));
    BENCH_CUDA(cudaMemsetAsync(sums, 0, static_cast<std::size_t>(tiles_) * sizeof *sums, stream_));
    todo.gate = {words, words + 1, reinterpret_cast<std::uint32_t*>(table + table_bytes), 0};
    todo.tasks = reinterpret_cast<wr::kernel::digest_task*>(table);
    todo.count = static_cast<std::uint32_t>(tasks.size());
    const double time = bench::device_seconds(stream_, [&] {
      BENCH_CUDA(wr::kernel::launch(&wr::kernel::digest_tiles<choice::block_threads>, 132 * choice::blocks_per_multiprocessor,
                                    choice::block_threads, stream_, todo));
    });
    std::vector<std::uint64_t> found(static_cast<std::size_t>(tiles_));
    BENCH_CUDA(cudaMemcpy(found.data(), sums, found.size() * sizeof *sums, cudaMemcpyDeviceToHost));
    BENCH_CUDA(cudaFree(table));
    BENCH_CUDA(cudaFreeHost(words));
    wr::digest_list list(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) list[i].sum = found[i];
    count_wrong(list);
    return time;
  }

  std::int64_t wrong() const { return wrong_; }
  std::int64_t checked() const { return checked_; }

 private:
  /// Tiles of a list, which has all of them in order, that differ from the live bytes' or the sources'.
  void count_wrong(const wr::digest_list& list) {
    BENCH_CUDA(cudaMemsetAsync(sums_, 0, static_cast<std::size_t>(tiles_) * 8, stream_));
    std::int64_t first = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const dim3 grid(static_cast<unsigned>((sizes_[i].cols + 4095) / 4096), static_cast<unsigned>((sizes_[i].rows + 255) / 256));
      plain_digests<<<grid, 512, 0, stream_>>>(source_ + offsets_[i], sizes_[i].rows, sizes_[i].cols * element_, element_, sums_ + first);
      first += std::int64_t{grid.x} * grid.y;
    }
    BENCH_CUDA(cudaGetLastError());
    std::vector<std::uint64_t> expected(static_cast<std::size_t>(tiles_));
    BENCH_CUDA(cudaMemcpyAsync(expected.data(), sums_, expected.size() * 8, cudaMemcpyDeviceToHost, stream_));
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    if (list.size() != expected.size()) wrong_ += tiles_;
    for (std::size_t i = 0; i < std::min(list.size(), expected.size()); ++i) wrong_ += list[i].sum != expected[i];
    checked_ += tiles_;
  }

  wr::dtype type_;
  int element_;
  cudaStream_t stream_;
  wr::model<wr::cuda_executor> model_;
  std::vector<bench::size> sizes_ = {};
  std::vector<std::string> names_ = {};
  std::vector<std::int64_t> offsets_ = {};
  std::int64_t bytes_ = 0, tiles_ = 0, wrong_ = 0, checked_ = 0;
  std::uint8_t* live_ = nullptr;
  std::uint8_t* source_ = nullptr;
  unsigned long long* sums_ = nullptr;
};

/// Host and device seconds of the digests of many tensors of [2, 2] fp32, by `model::digests`; and whether their sum is
/// right.
bool digest_small(int count, int repetitions, bench::table& rows) {
  auto* memory = device_array<std::uint32_t>(4 * std::int64_t{count});
  std::vector<std::uint32_t> host(4 * static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::uint32_t>(bench::mixed(i));
  BENCH_CUDA(cudaMemcpy(memory, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
  bool right = true;
  {
    wr::model<wr::cuda_executor> model;
    for (int i = 0; i < count; ++i) {
      const std::string name = "layers." + std::to_string(i) + ".scale";
      const wr::storage place(memory + 4 * std::int64_t{i});
      demand(model.add(wr::Plain::specs, name, wr::extents::tensor(name, {2, 2}, wr::dtype::fp32), {&place, 1}));
    }
    demand(model.seal());
    std::vector<double> hosts;
    for (int i = -1; i < repetitions; ++i) {
      wr::digest_list list;
      const double begin = seconds_now();
      demand(model.digests(&list));
      if (i >= 0) hosts.push_back(seconds_now() - begin);
      right = right && list.size() == static_cast<std::size_t>(count);
      for (std::size_t t = 0; t < list.size(); ++t) {
        std::uint64_t expected = 0;
        for (std::int64_t e = 0; e < 4; ++e) expected += wr::digest_element(e / 2, e % 2, 4, host[4 * t + static_cast<std::size_t>(e)]);
        right = right && list[t].sum == expected;
      }
    }
    const double time = bench::median(hosts);
    rows.add(std::to_string(count) + " tensors of 16 bytes: model::digests, host clock", time, 16.0 * count, 0, "read");
    std::printf("    %.0f ns a tensor\n", time / count * 1e9);
  }
  BENCH_CUDA(cudaFree(memory));
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (!bench::has_device()) return 77;
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 11;
  const int layers = argc > 2 ? std::atoi(argv[2]) : 20;
  cudaStream_t stream = nullptr;
  BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  bench::table rows;
  std::int64_t wrong = 0, checked = 0;
  for (const wr::dtype type : {wr::dtype::fp8_e4m3, wr::dtype::bf16}) {
    bed tested(layers, type, stream);
    const std::string name = type == wr::dtype::bf16 ? "BF16: " : "FP8: ";
    std::vector<double> copies, reads, block_reads, devices, hosts, plain, counted, prepares, prepares_counted;
    for (int i = -2; i < repetitions; ++i) {
      const auto keep = [i](std::vector<double>& in, double seconds) {
        if (i >= 0) in.push_back(seconds);
      };
      double prepare = 0;
      tested.draw(static_cast<std::uint64_t>(i + 100));
      keep(copies, tested.copy());
      keep(plain, tested.land(false, &prepare));
      keep(prepares, prepare);
      tested.draw(static_cast<std::uint64_t>(i + 200));
      keep(counted, tested.land(true, &prepare));
      keep(prepares_counted, prepare);
      keep(reads, tested.read(false));
      keep(block_reads, tested.read(true));
      keep(devices, tested.digest_by_device());
      keep(hosts, tested.digest());
    }
    if (bench::median(block_reads) < bench::median(reads)) reads = block_reads;
    const double bytes = tested.bytes(), read_rate = bytes / bench::median(reads), copy_rate = 2 * bytes / bench::median(copies);
    const auto add = [&](const std::string& what, const std::vector<double>& seconds, double moved, double rate, const char* of) {
      const double time = bench::median(seconds);
      rows.add(name + what, time, moved, moved / time / rate, of);
    };
    add("plain read, 16-byte loads", reads, bytes, read_rate, "read");
    add("digest of " + std::to_string(3 * layers) + " matrices, the kernel", devices, bytes, read_rate, "read");
    add("the same as model::digests, host clock", hosts, bytes, read_rate, "read");
    add("device copy (cudaMemcpyAsync)", copies, 2 * bytes, copy_rate, "copy");
    add("landing", plain, 2 * bytes, copy_rate, "copy");
    add("landing that adds up digests", counted, 2 * bytes, copy_rate, "copy");
    std::printf("    %lld tiles; prepare took the host %.3f ms, with digests %.3f ms\n", static_cast<long long>(tested.tiles()),
                bench::median(prepares) * 1e3, bench::median(prepares_counted) * 1e3);
    wrong += tested.wrong();
    checked += tested.checked();
  }
  const bool right = digest_small(278'000, std::max(repetitions / 3, 1), rows);
  const bool verified = wrong == 0 && right;
  std::printf("%s: %lld wrong of %lld tiles; small tensors %s\n", verified ? "verified" : "FAILED", static_cast<long long>(wrong),
              static_cast<long long>(checked), right ? "right" : "WRONG");
  rows.print(verified);
  return verified ? 0 : 1;
}
