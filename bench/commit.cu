// How long an engine has to stop for an update.
//
//   staged  a commit of 8 G FP8 parameters (47 layers of 2112 x 7168, 24576 x 1536 and 7168 x 16384 in 128 x 128
//           blocks) against landing and in-place conversion of the same matrices in mode direct, in turn; every element
//           is compared with a plain kernel
//   swap    a commit of an arena of 16 GiB and of 64 GiB, behind which a captured graph reads the new weights at once
//
//   commit [REPETITIONS] [LAYERS] [GIB...]      default 5, 47, 16 and 64
#include <string>
#include <vector>

#include "fp8_matrices.cuh"
#include "harness.cuh"

namespace wr = wreload;

namespace {

using bench::append_pieces;
using bench::count_wrong;
using bench::demand;
using bench::device_array;
using bench::device_seconds;
using bench::draw;
using bench::make_matrix;
using bench::matrix;
using bench::median;
using bench::random_bytes;
using bench::seconds_now;

struct timing {
  double landing = 0, conversion = 0, pause = 0;
};

class staged_bed {
 public:
  explicit staged_bed(int layers) {
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (int layer = 0; layer < layers; ++layer)
      for (int which = 0; which < 3; ++which) {
        all_.push_back(make_matrix(layer, which));
        const matrix& made = all_.back();
        demand(model_.add<wr::Fp8DequantLinear>(made.layer_name, wr::extents::matrix(made.layer_name, made.rows, made.cols),
                                                made.weight, made.grid));
        elements_ += made.elements();
        staging_bytes_ += made.elements() + 4 * made.blocks() + 32;
      }
    demand(model_.seal());
    staging_ = device_array<std::byte>(staging_bytes_);
    wrong_ = device_array<unsigned long long>(1);
    BENCH_CUDA(cudaMemset(wrong_, 0, sizeof *wrong_));
  }

  double elements() const { return static_cast<double>(elements_); }

  timing run(wr::update_mode mode) {
    std::vector<wr::piece> pieces;
    for (matrix& each : all_) {
      draw(each, ++seed_, stream_);
      append_pieces(each, pieces);
    }
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    wr::status refused;
    wr::start_options options{.mode = mode, .stream = {stream_}};
    if (mode == wr::update_mode::staged) options.staging.lent = {staging_, static_cast<std::size_t>(staging_bytes_)};
    auto update = model_.start(options, &refused);
    demand(refused);
    timing found;
    std::vector<wr::piece> weights, scales;  // apart, or direct would convert them on their way
    for (std::size_t i = 0; i < pieces.size(); ++i) (i % 2 == 0 ? weights : scales).push_back(pieces[i]);
    found.landing = device_seconds(stream_, [&] {
      demand(update.load(weights));
      demand(update.load(scales));
    });
    demand(update.prepare());
    if (mode == wr::update_mode::staged) {  // by the host's clock: what the engine sees
      demand(update.commit());
      demand(update.publish());
      found.pause = update.report().pause_seconds;
    } else {
      found.conversion = device_seconds(stream_, [&] { demand(update.commit()); });
      demand(update.publish());
    }
    for (const matrix& each : all_)
      count_wrong<<<2048, 256, 0, stream_>>>(each.weight, each.codes, each.scales, each.rows, each.cols, wrong_);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    return found;
  }

  bool verified() const {
    unsigned long long count = 0;
    BENCH_CUDA(cudaMemcpy(&count, wrong_, sizeof count, cudaMemcpyDeviceToHost));
    return count == 0;
  }

  void free() {
    for (matrix& each : all_)
      for (void* memory : {static_cast<void*>(each.codes), static_cast<void*>(each.scales), static_cast<void*>(each.weight),
                           static_cast<void*>(each.grid)})
        BENCH_CUDA(cudaFree(memory));
    BENCH_CUDA(cudaFree(staging_));
  }

 private:
  cudaStream_t stream_ = nullptr;
  wr::model<wr::cuda_executor> model_;
  std::vector<matrix> all_ = {};
  std::int64_t elements_ = 0;
  std::byte* staging_ = nullptr;
  std::int64_t staging_bytes_ = 0;
  unsigned long long* wrong_ = nullptr;
  std::uint64_t seed_ = 0;
};

/// What a graph does with the weights here: the sum of some words of each tensor.
__global__ void sample(const std::uint64_t* weights, std::int64_t tensor_words, std::int64_t tensors, std::uint64_t* sum) {
  std::uint64_t found = 0;
  for (std::int64_t i = 0; i < tensors; ++i)
    for (std::int64_t at = threadIdx.x; at < tensor_words; at += tensor_words / 64 + blockDim.x)
      found += weights[i * tensor_words + at];
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(found));
}

/// An arena full of BF16 tensors of 512 MiB, all loaded from one.
class swap_bed {
 public:
  explicit swap_bed(std::int64_t gib) {
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    demand(pages_.open({.bytes = gib << 30, .spare = true}));
    for (std::int64_t i = 0; i < 2 * gib; ++i) {
      names_.push_back("layers." + std::to_string(i) + ".weight");
      demand(model_.add<wr::Plain>(names_.back(), wr::extents::tensor(names_.back(), {rows, cols}, wr::dtype::bf16),
                                   pages_.take(tensor_bytes)));
    }
    demand(model_.use(pages_));
    demand(model_.seal());
    source_ = device_array<std::uint64_t>(tensor_bytes / 8);
    sum_ = device_array<std::uint64_t>(1);
    capture();
  }
  swap_bed(const swap_bed&) = delete;  // owns device memory
  swap_bed& operator=(const swap_bed&) = delete;
  ~swap_bed() {
    (void)cudaGraphExecDestroy(graph_);
    (void)cudaFree(source_);
    (void)cudaFree(sum_);
    (void)cudaStreamDestroy(stream_);
  }

  /// Seconds of the commit and of the whole pause; `*right` turns false where the graph does not read what was loaded.
  timing run(bool* right) {
    random_bytes<<<2048, 256, 0, stream_>>>(source_, tensor_bytes, ++seed_);
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    wr::status refused;
    auto update = model_.start({.mode = wr::update_mode::swap, .stream = {stream_}, .readers = {&reader_, 1}}, &refused);
    demand(refused);
    for (const std::string& name : names_)
      demand(update.load(name, {.data = source_, .type = wr::dtype::bf16, .extents = {rows, cols},
                                .memory = wr::memory_kind::device}));
    demand(update.prepare());
    const std::uint64_t before = replay();
    timing found;
    const double begin = seconds_now();
    demand(update.commit());
    found.conversion = seconds_now() - begin;
    const std::uint64_t after = replay();
    demand(update.publish());
    found.pause = update.report().pause_seconds;
    *right = *right && before == expected_ && after == expect();
    return found;
  }

 private:
  static constexpr std::int64_t rows = 16384, cols = 16384, tensor_bytes = rows * cols * 2;

  void capture() {
    BENCH_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    sample<<<1, 1024, 0, stream_>>>(reinterpret_cast<const std::uint64_t*>(pages_.data()), tensor_bytes / 8,
                                    static_cast<std::int64_t>(names_.size()), sum_);
    cudaGraph_t graph = nullptr;
    BENCH_CUDA(cudaStreamEndCapture(stream_, &graph));
    BENCH_CUDA(cudaGraphInstantiate(&graph_, graph, 0));
    BENCH_CUDA(cudaGraphDestroy(graph));
    expected_ = replay();
  }
  std::uint64_t replay() {
    BENCH_CUDA(cudaMemsetAsync(sum_, 0, sizeof *sum_, stream_));
    BENCH_CUDA(cudaGraphLaunch(graph_, stream_));
    return read();
  }
  /// The sum over the source, once per tensor.
  std::uint64_t expect() {
    BENCH_CUDA(cudaMemsetAsync(sum_, 0, sizeof *sum_, stream_));
    sample<<<1, 1024, 0, stream_>>>(source_, tensor_bytes / 8, 1, sum_);
    expected_ = read() * names_.size();
    return expected_;
  }
  std::uint64_t read() {
    std::uint64_t found = 0;
    BENCH_CUDA(cudaMemcpyAsync(&found, sum_, sizeof found, cudaMemcpyDeviceToHost, stream_));
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    return found;
  }

  wr::cuda_arena pages_;
  wr::model<wr::cuda_executor> model_;
  std::vector<std::string> names_ = {};
  cudaStream_t stream_ = nullptr;
  wr::stream_ref reader_ = {};  // the legacy default stream
  cudaGraphExec_t graph_ = nullptr;
  std::uint64_t* source_ = nullptr;
  std::uint64_t* sum_ = nullptr;
  std::uint64_t expected_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (!bench::has_device()) return 77;
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 5;
  const int layers = argc > 2 ? std::atoi(argv[2]) : 47;
  bool verified = true;
  {
    staged_bed tested(layers);
    std::vector<double> landings, conversions, pauses;
    for (int i = -1; i < repetitions; ++i) {
      const timing direct = tested.run(wr::update_mode::direct);
      const timing staged = tested.run(wr::update_mode::staged);
      if (i < 0) continue;
      landings.push_back(direct.landing);
      conversions.push_back(direct.conversion);
      pauses.push_back(staged.pause);
    }
    verified = tested.verified();
    const double both = median(landings) + median(conversions), pause = median(pauses);
    std::printf("%.2f G FP8 parameters: landing %.3f ms + conversion in place %.3f ms; staged pause %.3f ms = %.3f of both\n",
                tested.elements() * 1e-9, median(landings) * 1e3, median(conversions) * 1e3, pause * 1e3, pause / both);
    std::printf("JSON {\"name\": \"staged\", \"verified\": %s, \"g_params\": %.3f, \"landing_ms\": %.4f, \"conversion_ms\": "
                "%.4f, \"pause_ms\": %.4f, \"of_both\": %.4f}\n",
                verified ? "true" : "false", tested.elements() * 1e-9, median(landings) * 1e3, median(conversions) * 1e3,
                pause * 1e3, pause / both);
    tested.free();
  }
  std::vector<std::int64_t> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) sizes = {16, 64};
  for (const std::int64_t gib : sizes) {
    swap_bed tested(gib);
    std::vector<double> commits, pauses;
    bool right = true;
    for (int i = -1; i < repetitions; ++i) {
      const timing found = tested.run(&right);
      if (i < 0) continue;
      commits.push_back(found.conversion);
      pauses.push_back(found.pause);
    }
    verified = verified && right;
    std::printf("swap of %lld GiB: commit %.3f ms, pause until published %.3f ms; the graph read the new weights: %s\n",
                static_cast<long long>(gib), median(commits) * 1e3, median(pauses) * 1e3, right ? "yes" : "NO");
    std::printf("JSON {\"name\": \"swap\", \"verified\": %s, \"gib\": %lld, \"commit_ms\": %.4f, \"pause_ms\": %.4f}\n",
                right ? "true" : "false", static_cast<long long>(gib), median(commits) * 1e3, median(pauses) * 1e3);
  }
  return verified ? 0 : 1;
}
