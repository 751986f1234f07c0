// From files in the page cache to live BF16: a folder of block-FP8 safetensors (128 x 128 blocks), mapped, fed to
// model<cuda_executor>, from `start` to `publish` by the host's clock. The yardstick is a copy from pinned memory; the
// peer `cudaMemcpy` from the mapped file. Every element of every repetition is compared with a plain kernel.
//
//   file_to_gpu [NAME=VALUE ...]
//     folder=PATH      where the checkpoint is, or is written; default a new one in TMPDIR, which is removed
//     keep=1           leaves the folder
//     gib=8            bytes of FP8 codes
//     repetitions=5    medians of so many
//     threads=16, window_mib=128, pinned_mib=32   of the feed
//     writable=1       opens the files for writing too (see wreload::file_mapping); default: if pages can only be
//     pinned so
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <wreload/source/feed_cuda.cuh>
#include <wreload/wreload.cuh>

#include "fp8_matrices.cuh"
#include "harness.cuh"

namespace fs = std::filesystem;
namespace wr = wreload;

namespace {

using bench::count_wrong;
using bench::demand;
using bench::device_array;
using bench::median;
using bench::seconds_now;

struct options {
  std::string folder = {};
  bool keep = false;
  double gib = 8;
  int repetitions = 5;
  int threads = 16;
  std::int64_t window_mib = 128, pinned_mib = 32;
  int writable = -1;  ///< -1: as the probe says
};

options read_options(int argc, char** argv) {
  options asked;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto split = text.find('=');
    const std::string name = text.substr(0, split), value = split == std::string::npos ? "" : text.substr(split + 1);
    if (name == "folder")
      asked.folder = value;
    else if (name == "keep")
      asked.keep = value == "1";
    else if (name == "gib")
      asked.gib = std::stod(value);
    else if (name == "repetitions")
      asked.repetitions = std::max(std::stoi(value), 1);
    else if (name == "threads")
      asked.threads = std::stoi(value);
    else if (name == "pinned_mib")
      asked.pinned_mib = std::stoll(value);
    else if (name == "writable")
      asked.writable = std::stoi(value);
    else if (name == "window_mib")
      asked.window_mib = std::stoll(value);
    else {
      std::fprintf(stderr,
                   "%s: expected folder=, keep=, gib=, repetitions=, threads=, window_mib=, "
                   "pinned_mib= or writable=\n",
                   argv[i]);
      std::exit(2);
    }
  }
  return asked;
}

constexpr int file_count = 16;

/// Runs `work(i)` for i < count, on as many threads.
template <class Work>
void in_threads(int count, Work&& work) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
}

/// A matrix of the checkpoint, and where it runs.
std::vector<bench::matrix> plan_matrices(double gib) {
  std::vector<bench::matrix> all;
  double bytes = 0;
  for (int i = 0; bytes < gib * (1 << 30); ++i) {
    const bool wide = i % 2 == 1;
    const std::string name = "layers." + std::to_string(i);
    all.push_back({name, name + ".weight", name + ".weight_scale_inv", wide ? 2048 : 7168, wide ? 7168 : 2048, i % 2});
    bytes += static_cast<double>(all.back().elements());
  }
  return all;
}

/// Writes the matrices to files of neighbours, in the order weight, scale, weight, scale.
void write_folder(const std::string& folder, const std::vector<bench::matrix>& all) {
  fs::create_directories(folder);
  in_threads(file_count, [&](int file) {
    const std::size_t begin = all.size() * static_cast<std::size_t>(file) / file_count;
    const std::size_t end = all.size() * (static_cast<std::size_t>(file) + 1) / file_count;
    std::vector<std::unique_ptr<std::uint64_t[]>> data;
    std::vector<wr::named_tensor> tensors;
    for (std::size_t i = begin; i < end; ++i) {
      const auto words = static_cast<std::size_t>(all[i].elements() / 8),
                 blocks = static_cast<std::size_t>(all[i].blocks());
      data.push_back(std::make_unique_for_overwrite<std::uint64_t[]>(words));
      for (std::size_t w = 0; w < words; ++w) data.back()[w] = bench::mixed((i << 32) + w);
      tensors.push_back({all[i].weight_name, {data.back().get(), wr::dtype::fp8_e4m3, {all[i].rows, all[i].cols}}});
      data.push_back(std::make_unique_for_overwrite<std::uint64_t[]>(blocks));
      auto* scales = reinterpret_cast<std::uint32_t*>(data.back().get());
      for (std::size_t s = 0; s < blocks; ++s)
        scales[s] = 0x3B000000U + static_cast<std::uint32_t>(bench::mixed((i << 32) + s + 77) & 0x00FFFFFFU);
      tensors.push_back(
          {all[i].scale_name, {scales, wr::dtype::fp32, {(all[i].rows + 127) / 128, (all[i].cols + 127) / 128}}});
    }
    char name[64];
    std::snprintf(name, sizeof name, "/model-%05d-of-%05d.safetensors", file + 1, file_count);
    demand(wr::write_safetensors(folder + name, tensors));
  });
}

/// Brings every byte of the folder into the page cache.
void read_folder(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& each : fs::directory_iterator(folder)) paths.push_back(each.path().string());
  in_threads(static_cast<int>(paths.size()), [&](int i) {
    const int descriptor = ::open(paths[static_cast<std::size_t>(i)].c_str(), O_RDONLY | O_CLOEXEC);
    std::vector<char> buffer(std::size_t{8} << 20);
    while (::read(descriptor, buffer.data(), buffer.size()) > 0) {}
    ::close(descriptor);
  });
}

/// How fast pages of a fresh mapping of a file can be pinned, in pieces of 32 MiB, on some threads; 0 where they
/// cannot.
struct pinning {
  double pin_rate = 0, unpin_rate = 0;
  bool is_read_only = false;
};
pinning probe_pinning(std::span<const std::byte> mapped, int threads) {
  constexpr std::int64_t piece = std::int64_t{32} << 20;
  const auto bytes = static_cast<std::int64_t>(mapped.size()) / piece * piece;
  wr::cuda_pages pages;
  const auto range = [&](std::int64_t at) { return wr::page_range{mapped.data() + at, mapped.data() + at + piece}; };
  const auto each = [&](auto&& work) {
    std::atomic<std::int64_t> next = 0;
    const double begin = seconds_now();
    in_threads(threads, [&](int) {
      pages.enter_thread();
      for (std::int64_t at = next.fetch_add(piece); at < bytes; at = next.fetch_add(piece)) work(at);
    });
    return static_cast<double>(bytes) / (seconds_now() - begin);
  };
  if (bytes == 0 || !pages.pin(range(0))) return {};
  pages.unpin(range(0));
  pinning found;
  found.pin_rate = each([&](std::int64_t at) {
    if (pages.pin(range(at))) return;
    std::fprintf(stderr, "some pages could be pinned, others not\n");
    std::exit(1);
  });
  found.unpin_rate = each([&](std::int64_t at) { pages.unpin(range(at)); });
  found.is_read_only = pages.pins_read_only();
  return found;
}

bool print_pinning(const char* mapping, std::span<const std::byte> mapped, int threads) {
  const pinning found = probe_pinning(mapped, threads);
  if (found.pin_rate == 0)
    std::printf("pinning a %s mapping: not possible\n", mapping);
  else
    std::printf("pinning a %s mapping, %2d threads: %.1f GB/s, unpinning %.1f%s\n", mapping, threads,
                found.pin_rate * 1e-9, found.unpin_rate * 1e-9, found.is_read_only ? " (read-only flag)" : "");
  return found.pin_rate > 0;
}

/// The model, and the checkpoint's data in device memory to compare with.
class bed {
 public:
  bed(std::vector<bench::matrix> all, const std::string& folder, wr::file_mapping how)
      : all_(std::move(all)), folder_(folder), how_(how) {
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    const wr::checkpoint opened = open();
    for (bench::matrix& each : all_) {
      each.codes = device_array<std::uint8_t>(each.elements());
      each.scales = device_array<std::uint32_t>(each.blocks());
      each.weight = device_array<std::uint16_t>(each.elements());
      each.grid = device_array<std::uint32_t>(each.blocks());
      if (opened.find(each.weight_name) == nullptr || opened.find(each.scale_name) == nullptr) {
        std::fprintf(stderr, "%s: another checkpoint than gib= asks for\n", folder_.c_str());
        std::exit(2);
      }
      BENCH_CUDA(cudaMemcpy(each.codes, opened.find(each.weight_name)->tensor.data,
                            static_cast<std::size_t>(each.elements()), cudaMemcpyHostToDevice));
      BENCH_CUDA(cudaMemcpy(each.scales, opened.find(each.scale_name)->tensor.data,
                            static_cast<std::size_t>(each.blocks()) * 4, cudaMemcpyHostToDevice));
      demand(model_.add<wr::Fp8DequantLinear>(
          each.layer_name, wr::extents::matrix(each.layer_name, each.rows, each.cols), each.weight, each.grid));
      bytes_ += each.elements() + each.blocks() * 4;
      rows_ += each.rows;
    }
    demand(model_.seal());
    wrong_ = device_array<unsigned long long>(1);
    BENCH_CUDA(cudaMemset(wrong_, 0, sizeof *wrong_));
    BENCH_CUDA(cudaDeviceSynchronize());
  }

  wr::checkpoint open() const {
    wr::checkpoint opened;
    demand(opened.open(folder_, how_));
    return opened;
  }
  std::int64_t bytes() const { return bytes_; }

  struct timing {
    double seconds = 0;
    wr::feed_report told = {};
    std::int64_t fused_rows = 0;
  };

  /// One update, from `start` to `publish`; the weights are poison before and compared after it.
  timing run(wr::cuda_feed& feed, const wr::checkpoint& from) {
    for (const bench::matrix& each : all_)
      BENCH_CUDA(cudaMemsetAsync(each.weight, 0xA5, static_cast<std::size_t>(each.elements()) * 2, stream_));
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    timing found;
    wr::status refused;
    const double begin = seconds_now();
    auto update = model_.start({.stream = {stream_}}, &refused);
    demand(refused);
    demand(feed.send(model_, update, from.tensors(), &found.told));
    demand(update.finish());
    found.seconds = seconds_now() - begin;
    found.fused_rows = update.report().fused_rows;
    for (const bench::matrix& each : all_)
      count_wrong<<<2048, 256, 0, stream_>>>(each.weight, each.codes, each.scales, each.rows, each.cols, wrong_);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    return found;
  }

  std::int64_t wrong() const {
    unsigned long long count = 0;
    BENCH_CUDA(cudaMemcpy(&count, wrong_, sizeof count, cudaMemcpyDeviceToHost));
    return static_cast<std::int64_t>(count);
  }
  std::int64_t rows() const { return rows_; }
  cudaStream_t stream() const { return stream_; }

 private:
  std::vector<bench::matrix> all_;
  std::string folder_;
  wr::file_mapping how_;
  cudaStream_t stream_ = nullptr;
  wr::model<wr::cuda_executor> model_;
  std::int64_t bytes_ = 0;
  std::int64_t rows_ = 0;
  unsigned long long* wrong_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const options asked = read_options(argc, argv);
  if (!bench::has_device()) return 77;
  const bool is_given = !asked.folder.empty();
  const std::string folder =
      is_given ? asked.folder : (fs::temp_directory_path() / ("wreload-bench-" + std::to_string(::getpid()))).string();
  const std::vector<bench::matrix> matrices = plan_matrices(asked.gib);
  const double begin = seconds_now();
  const bool is_there = is_given && fs::exists(folder) && !fs::is_empty(folder);
  if (!is_there) write_folder(folder, matrices);
  const double written = seconds_now();
  read_folder(folder);
  const double read = seconds_now();

  BENCH_CUDA(cudaFree(nullptr));
  std::string first_file;
  for (const auto& each : fs::directory_iterator(folder))
    if (each.path().extension() == ".safetensors") first_file = each.path().string();
  bool works[2] = {};
  for (const auto how : {wr::file_mapping::read_only, wr::file_mapping::writable})
    for (const int threads : {1, 4, 16}) {
      wr::mapped_file file;
      if (!file.open(first_file, how).ok()) break;
      const bool writable = how == wr::file_mapping::writable;
      works[writable] = print_pinning(writable ? "writable" : "read-only", file.bytes(), threads);
    }
  for (const int threads : {1, 16}) {  // a way that the library does not take: pinning copies each page
    const int descriptor = ::open(first_file.c_str(), O_RDONLY | O_CLOEXEC);
    const auto size = static_cast<std::size_t>(fs::file_size(first_file));
    void* const copied = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    ::close(descriptor);
    if (copied == MAP_FAILED) break;
    (void)print_pinning("private, copied", {static_cast<const std::byte*>(copied), size}, threads);
    ::munmap(copied, size);
  }
  const bool is_writable = asked.writable < 0 ? works[1] && !works[0] : asked.writable == 1;

  int result = 0;
  {
    bed tested(matrices, folder, is_writable ? wr::file_mapping::writable : wr::file_mapping::read_only);
    const auto bytes = static_cast<double>(tested.bytes());
    std::printf(
        "%zu matrices in %d files, %.2f GB; %s in %.1f s, read in %.1f s; %s mappings; medians of %d; \"of "
        "copy\": of the copy from pinned memory\n",
        matrices.size(), file_count, bytes * 1e-9, is_there ? "found" : "written", written - begin, read - written,
        is_writable ? "writable" : "read-only", asked.repetitions);
    bench::table rows;

    double pinned_rate = 0;
    {
      constexpr std::size_t size = std::size_t{2} << 30;
      void* host = nullptr;
      BENCH_CUDA(cudaMallocHost(&host, size));
      std::memset(host, 0x5A, size);
      auto* device = device_array<std::uint8_t>(size);
      std::vector<double> seconds;
      for (int i = -1; i < asked.repetitions; ++i) {
        const double took = bench::device_seconds(tested.stream(), [&] {
          BENCH_CUDA(cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice, tested.stream()));
        });
        if (i >= 0) seconds.push_back(took);
      }
      pinned_rate = static_cast<double>(size) / median(seconds);
      rows.add("copy from pinned memory (cudaMemcpyAsync, 2 GiB)", median(seconds), static_cast<double>(size), 1);
      BENCH_CUDA(cudaFree(device));
      BENCH_CUDA(cudaFreeHost(host));
    }

    const std::int64_t window = asked.window_mib << 20;
    const auto lent_bytes = static_cast<std::size_t>(3 * (window + 4096));
    std::byte* lent = device_array<std::byte>(static_cast<std::int64_t>(lent_bytes));
    const auto measure = [&](const std::string& name, wr::feed_options options, bool is_fresh) {
      options.window_bytes = window;
      options.pinned_bytes = asked.pinned_mib << 20;
      options.threads = asked.threads;
      options.ring_bytes = 3 * (window + 4096);
      wr::cuda_feed feed(options);
      std::unique_ptr<wr::checkpoint> from;
      std::vector<double> seconds;
      bed::timing found;
      for (int i = -1; i < asked.repetitions; ++i) {
        if (is_fresh || from == nullptr) from = std::make_unique<wr::checkpoint>(tested.open());
        found = tested.run(feed, *from);
        if (i >= 0) seconds.push_back(found.seconds);
      }
      feed.release();
      const double time = median(seconds);
      rows.add(name, time, bytes, bytes / time / pinned_rate);
      std::printf(
          "    %s; %lld loads, %lld windows, %.0f MiB pinned at most; waited %.1f ms of %.1f; %.3f of the rows "
          "converted on "
          "their way\n",
          std::string(found.told.way()).c_str(), static_cast<long long>(found.told.loads),
          static_cast<long long>(found.told.windows), static_cast<double>(found.told.peak_registered_bytes) / (1 << 20),
          found.told.waiting_seconds * 1e3, found.told.seconds * 1e3,
          static_cast<double>(found.fused_rows) / static_cast<double>(tested.rows()));
    };
    const std::span<std::byte> device_window(lent, lent_bytes);
    measure("first touch, kernels read the pages", {}, true);
    measure("first touch, copied to a lent window", {.device_window = device_window}, true);
    measure("already pinned, kernels read the pages", {.keep_registered = true}, false);
    measure("already pinned, copied to a lent window", {.keep_registered = true, .device_window = device_window},
            false);
    measure("through the pinned ring, kernels read it", {.registers = false}, true);
    measure("through the pinned ring, copied to a lent window", {.registers = false, .device_window = device_window},
            true);

    {
      std::vector<double> seconds;
      std::size_t size = 0;
      for (int i = 0; i < asked.repetitions; ++i) {
        wr::mapped_file file;
        demand(file.open(tested.open().files().front().path()));
        size = file.bytes().size();
        auto* device = device_array<std::uint8_t>(static_cast<std::int64_t>(size));
        BENCH_CUDA(cudaDeviceSynchronize());
        const double from = seconds_now();
        BENCH_CUDA(cudaMemcpy(device, file.bytes().data(), size, cudaMemcpyHostToDevice));
        BENCH_CUDA(cudaDeviceSynchronize());
        seconds.push_back(seconds_now() - from);
        BENCH_CUDA(cudaFree(device));
      }
      const double time = median(seconds);
      rows.add("peer: cudaMemcpy from one mapped file, no conversion", time, static_cast<double>(size),
               static_cast<double>(size) / time / pinned_rate);
    }
    BENCH_CUDA(cudaFree(lent));
    const std::int64_t wrong = tested.wrong();
    std::printf("%s: %lld wrong elements; %.1f s in all\n", wrong == 0 ? "verified" : "FAILED",
                static_cast<long long>(wrong), seconds_now() - begin);
    rows.print(wrong == 0);
    result = wrong == 0 ? 0 : 1;
  }
  if (!asked.keep && !is_there) fs::remove_all(folder);
  return result;
}
