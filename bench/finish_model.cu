// Landing and finishing whole models: GLM-5.3-Flash and DeepSeek-V3 run in BF16 from block FP8, Kimi-K2.5 in NVFP4; rank
// 0 of tensor parallel 8, real extents, embedding and head and as many layers as fit in 96 GiB, through
// model<cuda_executor>.
//
// A bucket is up to 8 GiB of whole checkpoint tensors, one behind the other at multiples of 16 bytes in a device block.
// The block holds random bytes and serves for every bucket, from another place on; block scales and scalars are all
// different. Storage is poisoned before each pass, and every byte that kernels read is compared (model_check.cuh).
//
//   apart     a bucket's weights in one load, its block scales in the next: landed, then converted in place by `finish`
//   together  a bucket in one load: converted on the way
//
//   finish_model [MODEL [GIB]]      glm, deepseek, kimi or all; default all and 96
//
// Rates count what has to be read and written: landing 2 bytes a byte, conversion in place 3 an element, on the way 3.
// Launches: of landing one a load; of finish one a conversion key and one a level of computed params, and one that
// compares the scalars of Kimi's fused halves.
#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <wreload/wreload.cuh>

#include "harness.cuh"
#include "model_check.cuh"
#include "models.hpp"

namespace wr = wreload;

namespace {

using bench::demand;
using bench::device_array;
using bench::median;
using bench::seconds_now;

constexpr wr::tensor_parallel group{8, 0};
constexpr std::int64_t bucket_bytes = std::int64_t{8} << 30;
constexpr std::int64_t most_shift = std::int64_t{1} << 20;  // of a bucket in the block
constexpr int passes = 3;

constexpr std::int64_t rounded(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

/// Device memory that the models use in turn.
struct machine {
  cudaStream_t stream = nullptr;
  std::byte* storage = nullptr;
  std::int64_t storage_bytes = 0;
  std::uint8_t* block = nullptr;  // bucket_bytes + most_shift
  unsigned long long* wrong = nullptr;

  explicit machine(std::int64_t bytes) : storage_bytes(bytes) {
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    storage = device_array<std::byte>(bytes);
    block = device_array<std::uint8_t>(bucket_bytes + most_shift);
    wrong = device_array<unsigned long long>(1);
    BENCH_CUDA(cudaMemset(wrong, 0, sizeof *wrong));
  }
};

/// What a part of a model takes, without registering it.
struct size_count {
  std::int64_t bytes = 0;
  template <class Layout>
  void layer(const std::string& name, const wr::extents& sizes) {
    wr::status refused;
    for (const wr::storage_need& need : wr::storage_plan<Layout>(name, sizes, &refused))
      bytes += rounded(need.bytes, 256);
    demand(refused);
  }
  void tensor(const std::string&, wr::dtype, const wr::shape&) {}
};

/// Pieces of a bucket: all in order; and the block scales apart from the others.
struct bucket_pieces {
  std::vector<wr::piece> all = {}, weights = {}, scales = {};
};

/// What a pass took, in seconds.
struct timing {
  double landing = 0, commit = 0;  ///< on the device
  double load_host = 0, prepare_host = 0, commit_host = 0, publish_host = 0, finish_host = 0;
  std::int64_t load_launches = 0, commit_launches = 0, fused_rows = 0, converted_rows = 0;
};

enum class way { apart, together };

template <template <class> class Model>
class bed {
 public:
  explicit bed(machine& on) : on_(on), check_(sent_) {
    Model<bed> described(*this, group);
    described.embedding();
    described.head();
    for (; layers_ < Model<size_count>::real.layers; ++layers_) {
      size_count next;
      Model<size_count>(next, group).layer(layers_);
      if (used_ + next.bytes > on_.storage_bytes) break;
      described.layer(layers_);
    }
    place_tensors();
    for (const auto& expect : expectations_) expect();
    check_.seal();
    demand(model_.seal());
    for (const wr::param_record& param : model_.params()) {
      if (param.plan.spec.converts()) keys_ = 1;  // all blocks are 128 x 128
      if (param.plan.spec.is_computed()) levels_ = std::max(levels_, param.plan.spec.level + 1);
    }
  }
  bed(const bed&) = delete;  // owns device memory
  bed& operator=(const bed&) = delete;
  ~bed() {
    (void)cudaFree(floats_);
    (void)cudaFree(scalars_);
  }

  template <class Layout>
  void layer(const std::string& name, const wr::extents& sizes) {
    wr::status refused;
    const std::vector<wr::storage_need> needs = wr::storage_plan<Layout>(name, sizes, &refused);
    demand(refused);
    std::vector<wr::storage> places;
    for (const wr::storage_need& need : needs) {
      places.emplace_back(on_.storage + used_);
      used_ += rounded(need.bytes, 256);
      if (used_ > on_.storage_bytes) {
        std::fprintf(stderr, "%s: does not fit in %lld bytes\n", need.name.c_str(),
                     static_cast<long long>(on_.storage_bytes));
        std::exit(1);
      }
    }
    demand(model_.add(Layout::specs, name, sizes, places));
    expectations_.push_back([this, name, sizes, needs, places] { check_.add<Layout>(name, sizes, needs, places); });
  }
  void tensor(const std::string& name, wr::dtype type, const wr::shape& extents) {
    tensors_.push_back({name, {.type = type, .extents = extents}});
    sent_bytes_ += extents.elements() * wr::bytes_of(type);
  }

  int layers() const { return layers_; }
  std::size_t tensors() const { return tensors_.size(); }
  std::size_t buckets() const { return buckets_.size(); }
  std::int64_t sent_bytes() const { return sent_bytes_; }
  std::int64_t registered_bytes() const { return used_; }
  int keys() const { return keys_; }
  int levels() const { return levels_; }
  const bench::model_check& check() const { return check_; }
  std::int64_t wrong_floats() const { return wrong_floats_; }

  /// One update over poison, checked. The device is timed behind a queue that the host has filled (`by_device`), or the
  /// host from `prepare` to the end of `publish` with nothing in its way.
  timing run(way how, bool by_device) {
    BENCH_CUDA(cudaMemsetAsync(on_.storage, 0xA5, static_cast<std::size_t>(used_), on_.stream));
    BENCH_CUDA(cudaStreamSynchronize(on_.stream));
    timing found;
    wr::status refused;
    const std::int64_t launches = model_.executor().launches();
    auto update = model_.start({.stream = {on_.stream}}, &refused);
    demand(refused);
    const auto timed = [](auto&& call) {
      const double begin = seconds_now();
      call();
      return seconds_now() - begin;
    };
    found.landing = behind(most_load_host_, by_device, "landing", &found.load_host, [&] {
      for (const bucket_pieces& each : buckets_) {
        demand(update.load(how == way::together ? each.all : each.weights));
        if (how == way::apart && !each.scales.empty()) demand(update.load(each.scales));
      }
    });
    const std::int64_t landed = model_.executor().launches();
    found.load_launches = landed - launches;
    const double begin = seconds_now();
    found.prepare_host = timed([&] { demand(update.prepare()); });
    if (by_device)
      found.commit = behind(most_commit_host_, true, "commit", &found.commit_host, [&] { demand(update.commit()); });
    else
      most_commit_host_ = std::max(most_commit_host_, timed([&] { demand(update.commit()); }));
    found.publish_host = timed([&] { demand(update.publish()); });
    found.finish_host = seconds_now() - begin;
    found.commit_launches = model_.executor().launches() - landed;
    found.fused_rows = update.report().fused_rows;
    found.converted_rows = update.report().converted_rows;
    for (const std::string& each : update.report().warnings) std::printf("    warning: %s\n", each.c_str());
    wrong_floats_ += check_.run(on_.wrong, on_.stream);
    return found;
  }

 private:
  struct named_tensor {
    std::string name = {};
    bench::sent_tensor sent = {};
  };

  /// Device seconds of what a call enqueues while the stream is held; says where the host took longer than that. Waits.
  template <class Call>
  double behind(double& most_host, bool hold, const char* what, double* host, Call&& call) {
    const double held = hold ? 1.5 * most_host + 2e-3 : 0;
    const double device = bench::device_seconds(
        on_.stream,
        [&] {
          const double begin = seconds_now();
          call();
          *host = seconds_now() - begin;
        },
        static_cast<std::uint64_t>(held * 1e9));
    if (hold && *host > held) std::printf("    %s: the host was late, this timing is not the device's\n", what);
    most_host = std::max(most_host, *host);
    return device;
  }

  /// A scalar's value. Modules of one fused layer have the same; experts have their own.
  static float value_of(std::string_view name) {
    const std::size_t leaf = name.rfind('.'), module = name.rfind('.', leaf - 1);
    const bool is_expert = name.find(".experts.") != std::string_view::npos;
    const std::string_view of = name.substr(0, is_expert ? leaf : module);
    const std::size_t hash = std::hash<std::string_view>()(of) ^ std::hash<std::string_view>()(name.substr(leaf));
    return 0.001F + 1e-6F * static_cast<float>(hash % 8192);
  }

  /// Gives every checkpoint tensor its place, draws scales and scalars, and builds the buckets.
  void place_tensors() {
    std::int64_t floats = 0, scalars = 0, next = bucket_bytes + most_shift, end = 0;
    std::vector<float> values;
    std::vector<std::int64_t> places;
    for (named_tensor& each : tensors_) {
      const std::int64_t bytes = rounded(each.sent.extents.elements() * wr::bytes_of(each.sent.type), 16);
      if (each.sent.type != wr::dtype::fp32) {
        if (next + bytes > end) {
          next = static_cast<std::int64_t>(buckets_.size()) * 4099 * 16 % most_shift;
          end = next + bucket_bytes;
          buckets_.emplace_back();
        }
        places.push_back(std::exchange(next, next + bytes));
      } else if (each.sent.extents.rank() == 0) {
        each.sent.value = value_of(each.name);
        values.resize(static_cast<std::size_t>(scalars + 16) / sizeof(float));
        values[static_cast<std::size_t>(scalars) / sizeof(float)] = each.sent.value;
        places.push_back(std::exchange(scalars, scalars + 16));
      } else {
        places.push_back(std::exchange(floats, floats + bytes));
      }
      bucket_of_.push_back(buckets_.size() - 1);
    }
    floats_ = device_array<std::uint8_t>(floats);
    scalars_ = device_array<std::uint8_t>(std::max<std::int64_t>(scalars, 16));
    bench::random_bytes<<<2048, 256, 0, on_.stream>>>(reinterpret_cast<std::uint64_t*>(on_.block),
                                                      static_cast<std::uint64_t>(bucket_bytes + most_shift),
                                                      sent_bytes_);
    bench::random_scales<<<256, 256, 0, on_.stream>>>(reinterpret_cast<std::uint32_t*>(floats_),
                                                      static_cast<std::uint64_t>(floats) / 4, sent_bytes_);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(
        cudaMemcpyAsync(scalars_, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice, on_.stream));
    BENCH_CUDA(cudaStreamSynchronize(on_.stream));
    sent_.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      bench::sent_tensor& sent = tensors_[i].sent;
      const bool is_float = sent.type == wr::dtype::fp32, is_scalar = is_float && sent.extents.rank() == 0;
      sent.data = (is_scalar ? scalars_ : is_float ? floats_ : on_.block) + places[i];
      sent_.emplace(tensors_[i].name, sent);
      const wr::piece made{
          .name = tensors_[i].name,
          .tensor = {.data = sent.data, .type = sent.type, .extents = sent.extents, .memory = wr::memory_kind::device}};
      bucket_pieces& into = buckets_[bucket_of_[i]];
      into.all.push_back(made);
      (tensors_[i].name.ends_with(".weight_scale_inv") ? into.scales : into.weights).push_back(made);
    }
  }

  machine& on_;
  wr::model<wr::cuda_executor> model_;
  std::deque<named_tensor> tensors_ = {};  // names stay where they are
  std::vector<std::size_t> bucket_of_ = {};
  std::vector<bucket_pieces> buckets_ = {};
  std::unordered_map<std::string, bench::sent_tensor> sent_ = {};
  bench::model_check check_;
  std::vector<std::function<void()>> expectations_ = {};  ///< once the tensors have places
  std::uint8_t* floats_ = nullptr;                        ///< all fp32 tensors but the scalars
  std::uint8_t* scalars_ = nullptr;
  int layers_ = 0, keys_ = 0, levels_ = 0;
  std::int64_t used_ = 0, sent_bytes_ = 0, wrong_floats_ = 0;
  double most_load_host_ = 0, most_commit_host_ = 0;
};

/// All passes of a model; returns the wrong floats.
template <template <class> class Model>
std::int64_t measure(machine& on, double copy_rate, bench::table& rows) {
  const double begin = seconds_now();
  bed<Model> tested(on);
  const std::string name = Model<size_count>::name;
  const std::string storage = std::to_string(on.storage_bytes >> 30) + " GiB";
  rows.add_value(name + ": layers", tested.layers(),
                 ("of " + std::to_string(Model<size_count>::real.layers) + " in " + storage).c_str());
  std::printf("    rank %d of %d: %zu tensors, %.2f GB in %zu buckets; %.2f GB registered\n", group.rank, group.size,
              tested.tensors(), static_cast<double>(tested.sent_bytes()) * 1e-9, tested.buckets(),
              static_cast<double>(tested.registered_bytes()) * 1e-9);
  const auto elements = static_cast<double>(tested.check().dequantised_elements());
  const auto landed = static_cast<double>(tested.check().landed_bytes());
  const auto passes_of = [&](way how, bool by_device, int count) {
    std::vector<timing> all;
    for (int i = 0; i < count; ++i) all.push_back(tested.run(how, by_device));
    return all;
  };
  const auto of = [](const std::vector<timing>& all, double timing::*what) {
    std::vector<double> values;
    for (const timing& each : all) values.push_back(each.*what);
    return median(values);
  };
  const auto rate = [&](const std::string& what, double seconds, double bytes) {
    rows.add(name + ": " + what, seconds, bytes, bytes / seconds / copy_rate);
  };
  const auto tell = [&](const std::vector<timing>& all) {
    const timing& last = all.back();
    std::printf(
        "    %lld launches for %zu buckets; %lld at finish (%d conversion keys, %d levels of computed params); "
        "%lld rows converted, %lld of them on the way\n",
        static_cast<long long>(last.load_launches), tested.buckets(), static_cast<long long>(last.commit_launches),
        tested.keys(), tested.levels(), static_cast<long long>(last.converted_rows),
        static_cast<long long>(last.fused_rows));
  };
  const bool converts = elements > 0;
  const way first = converts ? way::apart : way::together;
  (void)passes_of(first, false, 1);  // warm
  const std::vector<timing> device = passes_of(first, true, passes), host = passes_of(first, false, passes);
  rate("landing", of(device, &timing::landing), landed);
  if (converts) rate("conversion in place", of(device, &timing::commit), 3 * elements);
  if (!converts) rows.add_value(name + ": commit, device", of(device, &timing::commit) * 1e3, "ms");
  rows.add_value(name + ": loads, host", of(device, &timing::load_host) * 1e9 / static_cast<double>(tested.tensors()),
                 "ns a tensor");
  rows.add_value(name + ": prepare, host", of(device, &timing::prepare_host) * 1e3, "ms");
  rows.add_value(name + ": commit, host", of(device, &timing::commit_host) * 1e3, "ms");
  rows.add_value(name + ": publish, host", of(device, &timing::publish_host) * 1e3, "ms");
  if (converts) rate("prepare to publish, host clock", of(host, &timing::finish_host), 3 * elements);
  if (!converts) rows.add_value(name + ": prepare to publish, host clock", of(host, &timing::finish_host) * 1e3, "ms");
  rows.add_value(name + ": launches of landing", static_cast<double>(device.back().load_launches), "");
  rows.add_value(name + ": launches of finish", static_cast<double>(device.back().commit_launches), "");
  tell(device);
  if (converts) {  // the codes are read once, and their rows of BF16 written; everything else lands as before
    (void)passes_of(way::together, false, 1);
    const std::vector<timing> together = passes_of(way::together, true, passes);
    const double seconds = of(together, &timing::landing) + of(together, &timing::commit);
    rate("converted on their way", seconds, landed + elements);
    rows.add_value(name + ": landing, then finish, over that",
                   (of(device, &timing::landing) + of(device, &timing::commit)) / seconds, "x");
    tell(together);
  }
  std::printf("    %.1f s in all\n", seconds_now() - begin);
  return tested.wrong_floats();
}

}  // namespace

int main(int argc, char** argv) {
  if (!bench::has_device()) return 77;
  const std::string which = argc > 1 ? argv[1] : "all";
  const std::int64_t gib = argc > 2 ? std::atoll(argv[2]) : 96;
  if ((which != "glm" && which != "deepseek" && which != "kimi" && which != "all") || gib < 1) {
    std::fprintf(stderr, "finish_model [glm|deepseek|kimi|all [GIB]]\n");
    return 2;
  }
  cudaDeviceProp device = {};
  BENCH_CUDA(cudaGetDeviceProperties(&device, 0));
  std::printf("%s, %d multiprocessors, L2 %d MB; medians of %d\n", device.name, device.multiProcessorCount,
              device.l2CacheSize >> 20, passes);
  machine on(gib << 30);
  bench::table rows;
  double copy_rate = 0;
  {
    std::vector<double> copies;
    constexpr std::int64_t half = bucket_bytes / 2;
    bench::random_bytes<<<2048, 256, 0, on.stream>>>(reinterpret_cast<std::uint64_t*>(on.block),
                                                     static_cast<std::uint64_t>(half), 1);
    for (int i = -2; i < 7; ++i) {
      const double copy = bench::device_seconds(on.stream, [&] {
        BENCH_CUDA(cudaMemcpyAsync(on.block + half, on.block, static_cast<std::size_t>(half), cudaMemcpyDeviceToDevice,
                                   on.stream));
      });
      if (i >= 0) copies.push_back(copy);
    }
    copy_rate = 2 * static_cast<double>(half) / median(copies);
    rows.add("device copy (cudaMemcpyAsync)", median(copies), 2 * static_cast<double>(half), 1);
  }
  std::int64_t wrong_floats = 0;
  if (which == "glm" || which == "all") wrong_floats += measure<bench::models::glm>(on, copy_rate, rows);
  if (which == "deepseek" || which == "all") wrong_floats += measure<bench::models::deepseek>(on, copy_rate, rows);
  if (which == "kimi" || which == "all") wrong_floats += measure<bench::models::kimi>(on, copy_rate, rows);
  unsigned long long wrong = 0;
  BENCH_CUDA(cudaMemcpy(&wrong, on.wrong, sizeof wrong, cudaMemcpyDeviceToHost));
  const bool verified = wrong == 0 && wrong_floats == 0;
  std::printf("%s: %llu wrong places, %lld wrong scalars\n", verified ? "verified" : "FAILED", wrong,
              static_cast<long long>(wrong_floats));
  rows.print(verified);
  return verified ? 0 : 1;
}
