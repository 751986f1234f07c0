// From files in the page cache to live BF16: a folder of block-FP8 safetensors (128 x 128 blocks), mapped, fed to
// model<cuda_executor>, from `start` to `publish` by the host's clock. The yardstick is a copy from pinned memory; the
// peer `cudaMemcpy` from the mapped file. Every element of every repetition is compared with a plain kernel. A way that
// has taken more than way_seconds= is repeated no more, and after seconds= no other begins.
//
//   file_to_gpu [NAME=VALUE ...]
//     folder=PATH      where the checkpoint is, or is written; default a new one in TMPDIR, which is removed
//     keep=1           leaves the folder
//     gib=8            bytes of FP8 codes
//     repetitions=5    medians of so many
//     threads=0, window_mib=32, ring_slots=8, device_slots=6   of the feed; slots of a window each
//     way_seconds=3, seconds=45
//     writable=1       opens the files for writing too (see wreload::file_mapping); default: if pages can only be
//                      pinned so
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
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
  int threads = 0;
  std::int64_t window_mib = 32, ring_slots = 8, device_slots = 6;
  double way_seconds = 3, seconds = 45;
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
    else if (name == "ring_slots")
      asked.ring_slots = std::max(std::stoll(value), 3LL);
    else if (name == "device_slots")
      asked.device_slots = std::max(std::stoll(value), 3LL);
    else if (name == "way_seconds")
      asked.way_seconds = std::stod(value);
    else if (name == "seconds")
      asked.seconds = std::stod(value);
    else if (name == "writable")
      asked.writable = std::stoi(value);
    else if (name == "window_mib")
      asked.window_mib = std::stoll(value);
    else {
      std::fprintf(stderr,
                   "%s: expected folder=, keep=, gib=, repetitions=, threads=, window_mib=, ring_slots=, "
                   "device_slots=, way_seconds=, seconds= or writable=\n",
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

/// Brings every byte of the folder into the page cache, clean: pages that wait to be written are slow to pin.
void read_folder(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& each : fs::directory_iterator(folder)) paths.push_back(each.path().string());
  in_threads(static_cast<int>(paths.size()), [&](int i) {
    const int descriptor = ::open(paths[static_cast<std::size_t>(i)].c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || ::fsync(descriptor) != 0) {
      std::fprintf(stderr, "%s: cannot be read, or synced\n", paths[static_cast<std::size_t>(i)].c_str());
      std::exit(1);
    }
    std::vector<char> buffer(std::size_t{8} << 20);
    while (::read(descriptor, buffer.data(), buffer.size()) > 0) {}
    ::close(descriptor);
  });
}

/// Prints how fast one thread pins and unpins a fresh, shared mapping of a file, in pieces of a window. Whether it can.
bool print_pinning(const std::string& path, wr::file_mapping how, std::int64_t piece) {
  wr::mapped_file file;
  if (!file.open(path, how).ok() || !file.is_shared()) return false;
  const char* const name = how == wr::file_mapping::writable ? "writable" : "read-only";
  const auto bytes = std::ssize(file.bytes()) / piece * piece;
  wr::cuda_pages pages;
  const auto range = [&](std::int64_t at) {
    return wr::page_range{file.bytes().data() + at, file.bytes().data() + at + piece};
  };
  const double begin = seconds_now();
  std::int64_t pinned = 0;
  while (pinned < bytes && seconds_now() - begin < 2 && pages.pin(range(pinned))) pinned += piece;
  const double middle = seconds_now();
  for (std::int64_t at = 0; at < pinned; at += piece) pages.unpin(range(at));
  const double end = seconds_now();
  if (pinned == 0)
    std::printf("pinning a %s mapping: not possible\n", name);
  else
    std::printf("pinning a %s mapping, one thread: %.1f GB/s, unpinning %.1f%s\n", name,
                static_cast<double>(pinned) / (middle - begin) * 1e-9,
                static_cast<double>(pinned) / (end - middle) * 1e-9, pages.pins_read_only() ? " (read-only flag)" : "");
  return pinned > 0;
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
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
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
  const std::int64_t window = asked.window_mib << 20;
  const bool works = print_pinning(first_file, wr::file_mapping::read_only, window);
  const bool is_writable = asked.writable >= 0
                               ? asked.writable == 1
                               : !works && print_pinning(first_file, wr::file_mapping::writable, window);

  int result = 0;
  {
    bed tested(matrices, folder, is_writable ? wr::file_mapping::writable : wr::file_mapping::read_only);
    const auto bytes = static_cast<double>(tested.bytes());
    std::printf(
        "%zu matrices in %d files, %.2f GB; %s in %.1f s, read in %.1f s; %s mappings; medians of at most %d; "
        "\"of copy\": of the copy from pinned memory\n",
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

    const std::int64_t slot = window + 4096;
    const std::span device_window(device_array<std::byte>(asked.device_slots * slot),
                                  static_cast<std::size_t>(asked.device_slots * slot));
    void* pinned = nullptr;
    BENCH_CUDA(cudaMallocHost(&pinned, static_cast<std::size_t>(asked.ring_slots * slot)));
    const std::span ring(static_cast<std::byte*>(pinned), static_cast<std::size_t>(asked.ring_slots * slot));
    const auto measure = [&](const std::string& name, wr::feed_options options) {
      if (seconds_now() - begin > asked.seconds) {
        std::printf("%s: no time left\n", name.c_str());
        return;
      }
      options.window_bytes = window;
      options.threads = asked.threads;
      wr::cuda_feed feed(options);
      std::unique_ptr<wr::checkpoint> from;
      std::vector<double> seconds;
      bed::timing found;
      double release_seconds = 0;
      const double way_begin = seconds_now();
      const auto has_time = [&] { return seconds_now() - way_begin < asked.way_seconds; };
      // The first is not counted, unless there is no time for another.
      const int least = options.keep_registered ? 1 : 0;  // its first one pins
      for (int i = -1; i < asked.repetitions && (i < least || has_time()); ++i) {
        if (!options.keep_registered || from == nullptr) from = std::make_unique<wr::checkpoint>(tested.open());
        found = tested.run(feed, *from);
        if (i == 0) seconds.clear();
        seconds.push_back(found.seconds);
        if (options.unregister_later) {
          const double now = seconds_now();
          feed.release();
          release_seconds = seconds_now() - now;
        }
      }
      feed.release();
      const double time = median(seconds);
      rows.add(name, time, bytes, bytes / time / pinned_rate);
      const auto gigabytes = [](std::int64_t count) { return static_cast<double>(count) * 1e-9; };
      std::printf(
          "    %s: %.2f GB registered, %.2f ring, %.2f host; %lld loads, at most %.2f GB pinned; waited %.1f ms of "
          "%.1f, %.1f with the device full, the update took %.1f; registered for %.1f ms, unregistered for %.1f, after "
          "it for %.1f; %.3f of the "
          "rows converted on their way; %zu times\n",
          std::string(found.told.way()).c_str(), gigabytes(found.told.registered_bytes),
          gigabytes(found.told.ring_bytes), gigabytes(found.told.host_bytes), static_cast<long long>(found.told.loads),
          gigabytes(found.told.peak_registered_bytes), found.told.waiting_seconds * 1e3, found.told.seconds * 1e3,
          found.told.full_seconds * 1e3, found.seconds * 1e3, found.told.registering_seconds * 1e3,
          found.told.unregistering_seconds * 1e3, release_seconds * 1e3,
          static_cast<double>(found.fused_rows) / static_cast<double>(tested.rows()), seconds.size());
    };
    measure("first touch, pages and ring, copied to a lent window", {.registers = true, .ring = ring, .device_window = device_window});
    measure("already pinned, copied to a lent window",
            {.keep_registered = true, .ring_bytes = 0, .device_window = device_window});
    measure("first touch, pages and ring, unpinned after the update",
            {.registers = true, .unregister_later = true, .ring = ring, .device_window = device_window});
    measure("first touch, ring alone, copied to a lent window",
            {.ring = ring, .device_window = device_window});
    measure("first touch, pages and ring, kernels read them", {.registers = true, .ring = ring});
    measure("already pinned, kernels read the pages", {.keep_registered = true, .ring_bytes = 0});
    measure("first touch, pages alone, copied to a lent window", {.registers = true, .ring_bytes = 0, .device_window = device_window});

    {
      std::vector<double> seconds;
      std::size_t size = 0;
      const double way_begin = seconds_now();
      for (int i = 0; i < asked.repetitions && seconds_now() - way_begin < asked.way_seconds; ++i) {
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
    BENCH_CUDA(cudaFree(device_window.data()));
    BENCH_CUDA(cudaFreeHost(pinned));
    const std::int64_t wrong = tested.wrong();
    std::printf("%s: %lld wrong elements; %.1f s in all\n", wrong == 0 ? "verified" : "FAILED",
                static_cast<long long>(wrong), seconds_now() - begin);
    rows.print(wrong == 0);
    result = wrong == 0 ? 0 : 1;
  }
  if (!asked.keep && !is_there) fs::remove_all(folder);
  return result;
}
