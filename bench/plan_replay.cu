// Host time of an update that replays a plan: Kimi-K2.5 (NVFP4) as rank 0 of tensor parallel 8 has it, all 278,219
// checkpoint tensors under their names, extents divided by 16, in device buckets of 1,000 tensors.
//
//   first      makes the plan                    ordinary    the same tensors as pieces
//   replayed   by the caller's manifest          hashed      the library computes the manifest
//
// The device is waited for after each call, outside the time. The weights after replays are compared with those of an
// ordinary update, by digests.
//
//   plan_replay [REPETITIONS]      default 7
#include <wreload/wreload.cuh>

#include <deque>
#include <string>
#include <vector>

#include "harness.cuh"
#include "models.hpp"

namespace wr = wreload;

namespace {

using bench::demand;
using bench::device_array;
using bench::median;
using bench::random_bytes;
using bench::seconds_now;

constexpr std::int64_t divided_by = 16;
constexpr std::size_t bucket_tensors = 1000;

/// Gives every scalar its value, so that the halves of a fused layer agree.
__global__ void set_scalars(std::byte* block, const std::int64_t* places, std::int64_t count, float value) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) *reinterpret_cast<float*>(block + places[i]) = value;
}

/// The checkpoint: names, shapes, and places in one block of memory.
class checkpoint {
 public:
  void add(std::string name, wr::dtype type, const wr::shape& extents) {
    names_.push_back(std::move(name));
    if (pieces_.size() % bucket_tensors == 0) {
      bytes_ = (bytes_ + 255) / 256 * 256;
      starts_.push_back(bytes_);
    }
    bytes_ = (bytes_ + 15) / 16 * 16;
    const wr::tensor_ref tensor{.data = reinterpret_cast<const void*>(base + bytes_), .type = type, .extents = extents,
                                .memory = wr::memory_kind::device};
    if (type == wr::dtype::fp32 && extents.rank() == 0) scalars_.push_back(bytes_);
    bytes_ += tensor.bytes();
    pieces_.push_back({.name = names_.back(), .tensor = tensor});
  }

  std::size_t tensors() const { return pieces_.size(); }
  std::size_t buckets() const { return starts_.size(); }
  std::int64_t bytes() const { return bytes_; }
  const std::vector<std::int64_t>& scalars() const { return scalars_; }

  /// A bucket of the checkpoint that lies at `block`.
  wr::bucket bucket(std::size_t index, const std::byte* block, bool numbered) const {
    const std::int64_t begin = starts_[index], end = index + 1 < starts_.size() ? starts_[index + 1] : bytes_;
    const std::size_t first = index * bucket_tensors, count = std::min(bucket_tensors, pieces_.size() - first);
    return {.pieces = {pieces_.data() + first, count}, .manifest = numbered ? index + 1 : 0,
            .base = reinterpret_cast<const void*>(base + begin), .data = block + begin, .bytes = end - begin};
  }
  /// The same as pieces.
  std::vector<wr::piece> pieces(std::size_t index, const std::byte* block) const {
    const wr::bucket of = bucket(index, block, true);
    std::vector<wr::piece> all(of.pieces.begin(), of.pieces.end());
    for (wr::piece& each : all)
      each.tensor.data = block + (reinterpret_cast<std::intptr_t>(each.tensor.data) - base);
    return all;
  }

 private:
  static constexpr std::intptr_t base = std::intptr_t{1} << 40;
  std::deque<std::string> names_ = {};  // stay where they are
  std::vector<wr::piece> pieces_ = {};
  std::vector<std::int64_t> starts_ = {};
  std::vector<std::int64_t> scalars_ = {};
  std::int64_t bytes_ = 0;
};

/// Registers the model and lists its checkpoint.
class registered {
 public:
  using model_type = wr::model<wr::cuda_executor>;

  explicit registered(model_type& model) : model_(model) {
    bench::models::kimi<registered> described(*this, {8, 0}, bench::models::kimi_dims.divided(divided_by));
    described.embedding();
    for (int i = 0; i < bench::models::kimi_dims.layers; ++i) described.layer(i);
    described.head();
    described.vision();
    demand(model_.seal());
  }

  const checkpoint& sent() const { return sent_; }

  template <class Layout>
  void layer(const std::string& name, const wr::extents& sizes) {
    wr::status refused;
    std::vector<wr::storage> memory;
    for (const wr::storage_need& need : wr::storage_plan<Layout>(name, sizes, &refused)) memory.emplace_back(take(need.bytes));
    demand(refused);
    demand(model_.add(Layout::specs, name, sizes, memory));
  }
  void tensor(const std::string& name, wr::dtype type, const wr::shape& extents) { sent_.add(name, type, extents); }

 private:
  std::byte* take(std::int64_t bytes) {
    constexpr std::int64_t block_bytes = std::int64_t{64} << 20;
    const std::int64_t rounded = (bytes + 255) / 256 * 256;
    if (left_ < rounded) {
      left_ = std::max(block_bytes, rounded);
      next_ = device_array<std::byte>(left_);
    }
    left_ -= rounded;
    return std::exchange(next_, next_ + rounded);
  }

  model_type& model_;
  checkpoint sent_ = {};
  std::byte* next_ = nullptr;
  std::int64_t left_ = 0;
};

enum class way { ordinary, numbered, hashed };

/// Host seconds of one update's calls.
struct timing {
  double start = 0, buckets = 0, prepare = 0, commit = 0, publish = 0;
  std::vector<double> each = {};  ///< bucket
  std::int64_t replayed = 0, launches = 0;
  double finish() const { return prepare + commit + publish; }
};

timing run(registered::model_type& model, const checkpoint& sent, const std::byte* block, way how, cudaStream_t stream) {
  timing found;
  const auto timed = [&](auto&& call) {
    const double began = seconds_now();
    demand(call());
    const double seconds = seconds_now() - began;
    BENCH_CUDA(cudaStreamSynchronize(stream));
    return seconds;
  };
  wr::status refused;
  wr::update<wr::cuda_executor> open;
  found.start = timed([&] {
    open = model.start({.stream = {stream}}, &refused);
    return refused;
  });
  for (std::size_t i = 0; i < sent.buckets(); ++i) {
    if (how == way::ordinary) {
      const std::vector<wr::piece> pieces = sent.pieces(i, block);
      found.each.push_back(timed([&] { return open.load(pieces); }));
    } else {
      const wr::bucket from = sent.bucket(i, block, how == way::numbered);
      found.each.push_back(timed([&] { return open.load(from); }));
    }
    found.buckets += found.each.back();
  }
  found.prepare = timed([&] { return open.prepare(); });
  found.commit = timed([&] { return open.commit(); });
  found.publish = timed([&] { return open.publish(); });
  found.replayed = open.report().replayed_buckets;
  found.launches = open.report().launches;
  for (const std::string& each : open.report().warnings) std::printf("warning: %s\n", each.c_str());
  return found;
}

void print(const char* name, const std::vector<timing>& all, std::size_t tensors, std::string& json) {
  const auto of = [&](auto&& value) {
    std::vector<double> values;
    for (const timing& each : all) values.push_back(value(each));
    return median(values) * 1e6;
  };
  const double bucket = of([](const timing& t) { return median(t.each); });
  const double slowest = of([](const timing& t) { return *std::max_element(t.each.begin(), t.each.end()); });
  const double loads = of([](const timing& t) { return t.buckets; });
  const double start = of([](const timing& t) { return t.start; }), prepare = of([](const timing& t) { return t.prepare; });
  const double commit = of([](const timing& t) { return t.commit; }), publish = of([](const timing& t) { return t.publish; });
  const double finish = of([](const timing& t) { return t.finish(); });
  const timing& last = all.back();
  std::printf("%-9s bucket %9.2f us (slowest %9.2f) = %7.2f ns a tensor; start %9.1f us, prepare %9.1f, commit %9.1f, publish %9.1f: "
              "finish %9.1f us; %lld replayed, %lld launches\n",
              name, bucket, slowest, loads * 1e3 / static_cast<double>(tensors), start, prepare, commit, publish, finish,
              static_cast<long long>(last.replayed), static_cast<long long>(last.launches));
  char text[512];
  std::snprintf(text, sizeof text,
                "%s{\"name\": \"%s\", \"bucket_us\": %.3f, \"slowest_bucket_us\": %.3f, \"ns_a_tensor\": %.3f, \"start_us\": %.2f, "
                "\"prepare_us\": %.2f, \"commit_us\": %.2f, \"publish_us\": %.2f, \"finish_us\": %.2f, \"replayed\": %lld, \"launches\": %lld}",
                json.empty() ? "" : ", ", name, bucket, slowest, loads * 1e3 / static_cast<double>(tensors), start, prepare,
                commit, publish, finish, static_cast<long long>(last.replayed), static_cast<long long>(last.launches));
  json += text;
}

}  // namespace

int main(int argc, char** argv) {
  if (!bench::has_device()) return 77;
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 7;
  cudaStream_t stream = nullptr;
  BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  registered::model_type model(wr::cuda_options{.plan_bytes = std::int64_t{80} << 20});
  const registered built(model);
  const checkpoint& sent = built.sent();
  std::byte* blocks[2] = {};
  std::int64_t* scalars = device_array<std::int64_t>(static_cast<std::int64_t>(sent.scalars().size()));
  BENCH_CUDA(cudaMemcpy(scalars, sent.scalars().data(), sent.scalars().size() * sizeof(std::int64_t), cudaMemcpyHostToDevice));
  for (int i = 0; i < 2; ++i) {
    const auto count = static_cast<std::int64_t>(sent.scalars().size());
    const std::int64_t bytes = (sent.bytes() + 7) / 8 * 8;
    blocks[i] = device_array<std::byte>(bytes);
    random_bytes<<<2048, 256, 0, stream>>>(reinterpret_cast<std::uint64_t*>(blocks[i]), static_cast<std::uint64_t>(bytes),
                                           static_cast<std::uint64_t>(i) + 1);
    set_scalars<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(blocks[i], scalars, count, 0.01F * static_cast<float>(i + 1));
    BENCH_CUDA(cudaGetLastError());
  }
  BENCH_CUDA(cudaStreamSynchronize(stream));
  std::printf("%zu tensors, %zu buckets, %.2f GB\n", sent.tensors(), sent.buckets(), static_cast<double>(sent.bytes()) * 1e-9);
  bool verified = sent.tensors() == 278219;

  std::vector<timing> first, ordinary, numbered, hashed;
  (void)run(model, sent, blocks[0], way::ordinary, stream);  // warm
  wr::digest_list expected[2];
  for (int i = 0; i < 4; ++i) {
    ordinary.push_back(run(model, sent, blocks[i % 2], way::ordinary, stream));
    if (i < 2) demand(model.digests(&expected[i]));
  }
  // Equal weights, and the other checkpoint's are not.
  const auto verify = [&](int which) {
    wr::audit_result same, other;
    demand(model.audit(expected[which], {}, &same));
    demand(model.audit(expected[1 - which], {}, &other));
    verified = verified && same.compared > 0 && same.mismatched.empty() && !other.mismatched.empty();
  };
  const auto buckets = static_cast<std::int64_t>(sent.buckets());
  for (const way how : {way::numbered, way::hashed}) {
    first.push_back(run(model, sent, blocks[1], how, stream));  // of the other manifests: makes a plan
    verified = verified && first.back().replayed == 0;
    verify(1);
    const std::int64_t kept = model.executor().kept_bytes();
    std::printf("tables: %.1f MB of plan memory in use\n", static_cast<double>(kept) * 1e-6);
    std::vector<timing>& all = how == way::numbered ? numbered : hashed;
    for (int i = 0; i < repetitions; ++i) {
      all.push_back(run(model, sent, blocks[i % 2], how, stream));
      verified = verified && all.back().replayed == buckets;
      if (i < 2) verify(i % 2);
    }
  }
  std::string json;
  print("ordinary", ordinary, sent.tensors(), json);
  print("first", first, sent.tensors(), json);
  print("replayed", numbered, sent.tensors(), json);
  print("hashed", hashed, sent.tensors(), json);
  std::printf("JSON {\"verified\": %s, \"tensors\": %zu, \"buckets\": %zu, \"rows\": [%s]}\n", verified ? "true" : "false",
              sent.tensors(), sent.buckets(), json.c_str());
  return verified ? 0 : 1;
}
