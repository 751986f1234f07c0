// How near a device copy the conversion in place comes: 20 layers of 2112 x 7168, 24576 x 1536 and 7168 x 16384 FP8
// matrices (128 x 128 blocks), 3.41 G elements, in one `finish` through model<cuda_executor>. Data is drawn anew for
// every repetition, and every result is compared with a plain kernel written here.
//
//   dequant_in_place [REPETITIONS] [LAYERS]      default 11 and 20
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <wreload/wreload.cuh>

#include "fp8_matrices.cuh"
#include "harness.cuh"

namespace wr = wreload;

namespace {

using bench::append_pieces;
using bench::count_wrong;
using bench::demand;
using bench::device_array;
using bench::draw;
using bench::make_matrix;
using bench::matrix;
using bench::seconds_now;
using bench::shapes;

/// The plain kernel of the comparison: one 8-byte load and one 16-byte store a thread, no scales.
__global__ void widen(const uint2* from, uint4* to, std::uint64_t vectors) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  const uint2 read = from[i];
  to[i] = uint4{__byte_perm(read.x, 0, 0x1404), __byte_perm(read.x, 0, 0x3424), __byte_perm(read.y, 0, 0x1404),
                __byte_perm(read.y, 0, 0x3424)};
}

struct timing {
  double landing = 0, device = 0, finish = 0;
  std::int64_t launches = 0;
};

class bed {
 public:
  explicit bed(int layers) {
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (int layer = 0; layer < layers; ++layer)
      for (int which = 0; which < 3; ++which) {
        const matrix made = make_matrix(layer, which);
        demand(model_.add<wr::Fp8DequantLinear>(made.layer_name, wr::extents::matrix(made.layer_name, made.rows, made.cols),
                                                made.weight, made.grid));
        all_.push_back(made);
      }
    demand(model_.seal());
    wrong_ = device_array<unsigned long long>(1);
    BENCH_CUDA(cudaMemset(wrong_, 0, sizeof *wrong_));
  }

  std::vector<matrix>& all() { return all_; }
  cudaStream_t stream() const { return stream_; }

  /// New random data, poison in the weights, one update of the given matrices; everything is checked.
  timing run(const std::vector<matrix*>& some, bool complete, bool is_fused = false) {
    std::vector<wr::piece> pieces;
    std::vector<std::string_view> names;
    for (matrix* each : some) {
      draw(*each, ++seed_, stream_);
      append_pieces(*each, pieces);
      names.push_back(each->weight_name);
      names.push_back(each->scale_name);
    }
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    timing found;
    wr::status refused;
    wr::start_options options{.stream = {stream_}};
    if (!complete) options.scope = wr::update_scope::partial(names);
    auto update = model_.start(options, &refused);
    demand(refused);
    // Weights alone, then their scales: landed, and converted in place. Together they are converted on their way.
    std::vector<wr::piece> weights, scales;
    for (std::size_t i = 0; i < pieces.size(); ++i) (i % 2 == 0 ? weights : scales).push_back(pieces[i]);
    found.landing = bench::device_seconds(stream_, [&] {
      if (is_fused) return demand(update.load(pieces));
      demand(update.load(weights));
      demand(update.load(scales));
    });
    const double begin = seconds_now();
    demand(update.prepare());
    if (by_device_) {
      found.device = bench::device_seconds(stream_, [&] { demand(update.commit()); });
      demand(update.publish());
    } else {
      demand(update.commit());
      demand(update.publish());
      found.finish = seconds_now() - begin;
    }
    found.launches = update.report().launches;
    for (matrix* each : some)
      count_wrong<<<2048, 256, 0, stream_>>>(each->weight, each->codes, each->scales, each->rows, each->cols, wrong_);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    by_device_ = !by_device_;
    return found;
  }

  std::int64_t wrong() {
    unsigned long long count = 0;
    BENCH_CUDA(cudaMemcpy(&count, wrong_, sizeof count, cudaMemcpyDeviceToHost));
    return static_cast<std::int64_t>(count);
  }

 private:
  cudaStream_t stream_ = nullptr;
  wr::model<wr::cuda_executor> model_;
  std::vector<matrix> all_ = {};
  unsigned long long* wrong_ = nullptr;
  std::uint64_t seed_ = 0;
  bool by_device_ = true;  ///< times the device and the host's finish in turn
};

}  // namespace

int main(int argc, char** argv) {
  if (!bench::has_device()) return 77;
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 11;
  const int layers = argc > 2 ? std::atoi(argv[2]) : 20;
  cudaDeviceProp device = {};
  BENCH_CUDA(cudaGetDeviceProperties(&device, 0));
  bed tested(layers);
  std::vector<matrix*> everything;
  std::int64_t elements = 0;
  for (matrix& each : tested.all()) {
    everything.push_back(&each);
    elements += each.elements();
  }
  std::printf("%s, %d multiprocessors, L2 %d MB; %zu matrices, %.2f G elements; medians of %d\n", device.name,
              device.multiProcessorCount, device.l2CacheSize >> 20, everything.size(), static_cast<double>(elements) * 1e-9,
              repetitions);
  bench::table rows;
  bool verified = true;

  double copy_rate = 0;
  {
    auto* from = device_array<std::uint8_t>(elements);
    auto* to = device_array<std::uint8_t>(2 * elements);
    std::vector<double> copies, widenings;
    for (int i = -2; i < repetitions; ++i) {
      bench::random_bytes<<<2048, 256, 0, tested.stream()>>>(reinterpret_cast<std::uint64_t*>(from),
                                                             static_cast<std::uint64_t>(elements), 1000 + i);
      const double copy = bench::device_seconds(tested.stream(), [&] {
        BENCH_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(elements), cudaMemcpyDeviceToDevice, tested.stream()));
      });
      const auto vectors = static_cast<std::uint64_t>(elements / 8);
      const double widened = bench::device_seconds(tested.stream(), [&] {
        widen<<<static_cast<unsigned>((vectors + 255) / 256), 256, 0, tested.stream()>>>(
            reinterpret_cast<const uint2*>(from), reinterpret_cast<uint4*>(to), vectors);
      });
      BENCH_CUDA(cudaGetLastError());
      if (i < 0) continue;
      copies.push_back(copy);
      widenings.push_back(widened);
    }
    const double bytes = static_cast<double>(elements);
    copy_rate = 2 * bytes / bench::median(copies);
    rows.add("device copy (cudaMemcpyAsync)", bench::median(copies), 2 * bytes, 1);
    rows.add("plain 1-to-2-byte widening, out of place", bench::median(widenings), 3 * bytes,
             3 * bytes / bench::median(widenings) / copy_rate);
    BENCH_CUDA(cudaFree(from));
    BENCH_CUDA(cudaFree(to));
  }

  const auto measure = [&](const std::string& name, const auto& pick, bool complete) {
    std::vector<double> landings, conversions, finishes;
    double bytes = 0;
    std::int64_t launches = 0;
    for (int i = -2; i < 2 * repetitions; ++i) {
      const std::vector<matrix*> some = pick(i);
      const timing found = tested.run(some, complete);
      bytes = 0;
      for (const matrix* each : some) bytes += static_cast<double>(each->elements());
      launches = found.launches;
      if (i < 0) continue;
      landings.push_back(found.landing);
      if (found.device > 0) conversions.push_back(found.device);
      if (found.finish > 0) finishes.push_back(found.finish);
    }
    const auto add = [&](const std::string& what, const std::vector<double>& seconds, double per_element) {
      const double time = bench::median(seconds);
      rows.add(name + ": " + what, time, per_element * bytes, per_element * bytes / time / copy_rate);
    };
    add("landing", landings, 2);
    add("conversion in place", conversions, 3);
    add("prepare to publish, host clock", finishes, 3);
    std::printf("    %lld launches, landing included\n", static_cast<long long>(launches));
  };

  measure(std::to_string(everything.size()) + " matrices", [&](int) { return everything; }, true);
  {
    std::vector<double> fused;
    for (int i = -2; i < repetitions; ++i) {
      const timing found = tested.run(everything, true, true);
      if (i >= 0) fused.push_back(found.landing);
    }
    const double time = bench::median(fused), bytes = 3 * static_cast<double>(elements);
    rows.add(std::to_string(everything.size()) + " matrices: converted on their way (weights and scales in one load)", time,
             bytes, bytes / time / copy_rate);
  }
  for (int which = 0; which < 3; ++which) {
    std::vector<matrix*> same;
    for (matrix* each : everything)
      if (each->which == which) same.push_back(each);
    const std::string name = std::to_string(shapes[which].rows) + " x " + std::to_string(shapes[which].cols);
    measure(name + " x " + std::to_string(same.size()), [&](int) { return same; }, false);
    measure(name + " alone", [&](int i) { return std::vector<matrix*>{same[static_cast<std::size_t>(i + 2) % same.size()]}; },
            false);
  }
  const std::int64_t wrong = tested.wrong();
  verified = wrong == 0;
  std::printf("%s: %lld wrong elements\n", verified ? "verified" : "FAILED", static_cast<long long>(wrong));
  rows.print(verified);
  return verified ? 0 : 1;
}
