// Host cost of a load per tensor: Kimi-K2.5 in NVFP4 as it is stored, 278,219 names, in the library's layouts, for one
// rank alone and for rank 0 of TP 8. Extents are scaled down (hidden 32, experts of 16 rows a rank), so that a tensor
// is small and the books are what is measured. All sources are one small buffer. Rows say whether the host executor
// copied bytes and computed alphas ("copied") or nothing
// ("books").
//
//   host_cost [ROUNDS]       default 5
//
// File order: a file a layer; in a file by dtype, widest first, then by name, as safetensors writes them.

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <wreload/wreload.hpp>

#include "../tests/heap_counter.hpp"
#include "table.hpp"

namespace wr = wreload;
using bench::demand;
using bench::seconds_now;

namespace {

constexpr std::int64_t hidden = 32, experts = 384, all_names = 278'219;
constexpr int layers = 61;
constexpr std::size_t bucket_pieces = 1000;

/// The host executor, but nothing is copied, converted or computed.
class books_executor : public wr::host_executor {
 public:
  wr::status land(lane&, std::span<const wr::land_job>) { return {}; }
  wr::status combine(lane&, std::span<const wr::combine_job>) { return {}; }
};

/// Memory that is not counted as the library's.
class untold_memory {
 public:
  untold_memory() = default;
  untold_memory(const untold_memory&) = delete;  // owns blocks
  untold_memory& operator=(const untold_memory&) = delete;
  ~untold_memory() {
    for (void* block : blocks_) std::free(block);
  }
  void* take(std::size_t bytes) { return blocks_.emplace_back(std::calloc(bytes + 1, 1)); }

 private:
  std::vector<void*> blocks_ = {};
};

/// A tensor as its sender has it.
struct tensor {
  std::string name = {};
  wr::dtype type = wr::dtype::none;
  wr::shape extents = {};
  int file = 0;
};

/// Adds the model's layers and lists its tensors.
template <class Model>
class kimi {
 public:
  kimi(Model& model, int ranks) : model_(model), ranks_(ranks), width_(16 * ranks) {
    constexpr auto bf16 = wr::dtype::bf16;
    plain("language_model.model.embed_tokens.weight", {64 * ranks, hidden}, bf16, wr::parallel::column);
    for (int layer = 0; layer < layers; ++layer) {
      file_ = layer + 1;
      const std::string prefix = "language_model.model.layers." + std::to_string(layer) + ".";
      attention(prefix + "self_attn.");
      plain(prefix + "input_layernorm.weight", {hidden}, bf16);
      plain(prefix + "post_attention_layernorm.weight", {hidden}, bf16);
      if (layer == 0) {
        gated(prefix + "mlp.");
        continue;
      }
      plain(prefix + "mlp.gate.weight", {experts, hidden}, bf16);
      plain(prefix + "mlp.gate.e_score_correction_bias", {experts}, wr::dtype::fp32);
      stacked(prefix + "mlp.experts");
      gated(prefix + "mlp.shared_experts.");
    }
    file_ = layers + 1;
    plain("language_model.model.norm.weight", {hidden}, bf16);
    plain("language_model.lm_head.weight", {64 * ranks, hidden}, bf16, wr::parallel::column);
    vision();
    const auto before = [](const tensor& a, const tensor& b) {
      if (a.file != b.file) return a.file < b.file;
      return a.type != b.type ? wr::bytes_of(a.type) > wr::bytes_of(b.type) ||
                                    (wr::bytes_of(a.type) == wr::bytes_of(b.type) && a.type > b.type)
                              : a.name < b.name;
    };
    std::sort(tensors.begin(), tensors.end(), before);
    tensors.shrink_to_fit();
  }

  std::vector<tensor> tensors = {};

 private:
  template <class Layout>
  void add(const std::string& name, wr::extents sizes) {
    sizes.tp = {ranks_, 0};
    wr::status refused;
    std::vector<wr::storage> places;
    for (const wr::storage_need& need : wr::storage_plan<Layout>(name, sizes, &refused))
      places.emplace_back(memory_.take(static_cast<std::size_t>(need.bytes)));
    demand(refused);
    demand(model_.add(Layout::specs, name, sizes, places));
  }
  void plain(const std::string& name, const wr::shape& dims, wr::dtype type,
             wr::parallel split = wr::parallel::replicated) {
    wr::extents sizes = wr::extents::tensor(name, dims, type);
    sizes.split = split;
    add<wr::Plain>(name, sizes);
    tensors.push_back({name, type, dims, file_});
  }
  void attention(const std::string& prefix) {
    constexpr auto bf16 = wr::dtype::bf16;
    wr::extents fused = wr::extents::tensor(prefix + "q_a_proj.weight", {16, hidden}, bf16);
    fused.shards.push_back({.module = prefix + "kv_a_proj_with_mqa.weight", .rows = 8});
    add<wr::Plain>(prefix + "fused_qkv_a_proj_with_mqa.weight", fused);
    tensors.push_back({prefix + "q_a_proj.weight", bf16, {16, hidden}, file_});
    tensors.push_back({prefix + "kv_a_proj_with_mqa.weight", bf16, {8, hidden}, file_});
    plain(prefix + "q_a_layernorm.weight", {16}, bf16);
    plain(prefix + "kv_a_layernorm.weight", {8}, bf16);
    plain(prefix + "q_b_proj.weight", {16 * ranks_, 16}, bf16, wr::parallel::column);
    plain(prefix + "kv_b_proj.weight", {16 * ranks_, 8}, bf16, wr::parallel::column);
    plain(prefix + "o_proj.weight", {hidden, 16 * ranks_}, bf16, wr::parallel::row);
  }
  /// The four tensors of a module in NVFP4, `cols` values a row.
  void nvfp4(const std::string& module, std::int64_t rows, std::int64_t cols) {
    tensors.push_back({module + ".weight", wr::dtype::u8, {rows, cols / 2}, file_});
    tensors.push_back({module + ".weight_scale", wr::dtype::fp8_e4m3, {rows, cols / 16}, file_});
    tensors.push_back({module + ".weight_scale_2", wr::dtype::fp32, {}, file_});
    tensors.push_back({module + ".input_scale", wr::dtype::fp32, {}, file_});
  }
  void gated(const std::string& prefix) {
    const wr::shape half{hidden / 2};
    add<wr::Nvfp4Linear>(prefix + "gate_up_proj", {.shards = {{.module = prefix + "gate_proj", .rows = width_},
                                                              {.module = prefix + "up_proj", .rows = width_}},
                                                   .inner = half,
                                                   .split = wr::parallel::column});
    add<wr::Nvfp4Linear>(prefix + "down_proj", {.shards = {{.module = prefix + "down_proj", .rows = hidden}},
                                                .inner = {width_ / 2},
                                                .split = wr::parallel::row});
    module_tensors(prefix);
  }
  void stacked(const std::string& prefix) {
    add<wr::Nvfp4Moe>(prefix, {.shards = {{.module = "gate_proj", .rows = width_, .cols = hidden / 2},
                                          {.module = "up_proj", .rows = width_, .cols = hidden / 2},
                                          {.module = "down_proj", .rows = hidden, .cols = width_ / 2,
                                           .split = wr::parallel::row}},
                               .split = wr::parallel::column,
                               .experts = wr::expert_slots::all(experts)});
    for (std::int64_t expert = 0; expert < experts; ++expert)
      module_tensors(prefix + "." + std::to_string(expert) + ".");
  }
  void module_tensors(const std::string& prefix) {
    nvfp4(prefix + "gate_proj", width_, hidden);
    nvfp4(prefix + "up_proj", width_, hidden);
    nvfp4(prefix + "down_proj", hidden, width_);
  }
  void with_bias(const std::string& module, const wr::shape& dims) {
    plain(module + ".weight", dims, wr::dtype::bf16);
    plain(module + ".bias", {dims.rows()}, wr::dtype::bf16);
  }
  void vision() {
    with_bias("vision_tower.patch_embed.proj", {8, 3, 2, 2});
    plain("vision_tower.patch_embed.pos_emb.weight", {8, 8, 8}, wr::dtype::bf16);
    for (int block = 0; block < 27; ++block) {
      const std::string prefix = "vision_tower.encoder.blocks." + std::to_string(block) + ".";
      with_bias(prefix + "wqkv", {24, 8});
      with_bias(prefix + "wo", {8, 8});
      with_bias(prefix + "mlp.fc0", {32, 8});
      with_bias(prefix + "mlp.fc1", {8, 32});
      with_bias(prefix + "norm0", {8});
      with_bias(prefix + "norm1", {8});
    }
    with_bias("vision_tower.encoder.final_layernorm", {8});
    with_bias("mm_projector.pre_norm", {8});
    with_bias("mm_projector.proj.0", {32, 32});
    with_bias("mm_projector.proj.2", {hidden, 32});
  }

  Model& model_;
  int ranks_;
  std::int64_t width_;
  int file_ = 0;
  untold_memory memory_ = {};
};

template <class Executor>
bool measure(int ranks, const std::string& what, int rounds, bench::table& results) {
  const std::int64_t heap_before = wr::test::heap_now().bytes;
  wr::model<Executor> model;
  kimi<wr::model<Executor>> made(model, ranks);
  demand(model.seal());
  std::int64_t model_bytes = wr::test::heap_now().bytes - heap_before;
  const auto count = made.tensors.size();
  if (static_cast<std::int64_t>(count) != all_names) {
    std::fprintf(stderr, "%zu tensors, %lld expected\n", count, static_cast<long long>(all_names));
    return false;
  }
  {
    const std::int64_t before_copy = wr::test::heap_now().bytes;
    const std::vector<tensor> list = made.tensors;
    model_bytes -= wr::test::heap_now().bytes - before_copy;  // the list is the sender's
  }
  results.add_value(what + ": host memory of the sealed model",
                    static_cast<double>(model_bytes) / static_cast<double>(count), "bytes a tensor");
  const std::vector<std::byte> bytes(1 << 20, std::byte{0x21});
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  // As a sender has them: what it sends next lies next.
  const auto in_order = [&](std::string& text, bool by_id) {
    text.clear();
    for (const std::size_t i : order) text += made.tensors[i].name;
    std::vector<wr::piece> pieces;
    pieces.reserve(count);
    std::size_t begin = 0;
    for (const std::size_t i : order) {
      const tensor& each = made.tensors[i];
      const std::string_view name = std::string_view(text).substr(begin, each.name.size());
      begin += name.size();
      pieces.push_back({.tensor = {bytes.data(), each.type, each.extents}});
      if (by_id) pieces.back().id = model.find(name);
      else pieces.back().name = name;
    }
    return pieces;
  };
  std::int64_t most_heap = 0;
  double finish_seconds = 0;
  const auto run = [&](const std::string& how, const std::vector<wr::piece>& pieces, std::size_t bucket) {
    std::vector<double> loads, finishes;
    std::int64_t heap = 0;
    for (int round = 0; round < rounds; ++round) {
      wr::status refused;
      auto update = model.start({}, &refused);
      demand(refused);
      const std::int64_t before = wr::test::heap_now().allocations;
      const double began = seconds_now();
      if (bucket == 1) {
        for (const wr::piece& each : pieces)
          demand(each.id.is_known() ? update.load(each.id, each.tensor) : update.load(each.name, each.tensor));
      } else {
        for (std::size_t i = 0; i < count; i += bucket)
          demand(update.load(std::span(pieces).subspan(i, std::min(bucket, count - i))));
      }
      const double loaded = seconds_now();
      heap = wr::test::heap_now().allocations - before;
      demand(update.finish());
      finishes.push_back(seconds_now() - loaded);
      loads.push_back((loaded - began) / static_cast<double>(count));
    }
    const std::string row = what + ", " + how + (bucket == 1 ? ", one by one" : ", buckets of 1000");
    results.add_value(row, bench::median(loads) * 1e9, "ns a tensor");
    most_heap = std::max(most_heap, heap);
    finish_seconds = bench::median(finishes);
  };
  for (const bool is_shuffled : {false, true}) {
    if (is_shuffled) std::shuffle(order.begin(), order.end(), std::mt19937(7));
    const std::string suffix = is_shuffled ? ", shuffled" : ", file order";
    std::string text;
    for (const bool by_id : {false, true}) {
      const std::vector<wr::piece> pieces = in_order(text, by_id);
      for (const std::size_t bucket : {bucket_pieces, std::size_t{1}})
        run((by_id ? "by id" : "by name") + suffix, pieces, bucket);
    }
  }
  results.add_value(what + ": heap allocations", static_cast<double>(most_heap), "in all loads of an update, at most");
  results.add_value(what + ": finish", finish_seconds * 1e3, "ms");
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::max(1, std::atoi(arguments[1])) : 5;
  bench::table results;
  bool good = measure<books_executor>(1, "books, TP 1", rounds, results);
  good = measure<books_executor>(8, "books, rank 0 of TP 8", rounds, results) && good;
  good = measure<wr::host_executor>(8, "copied, rank 0 of TP 8", rounds, results) && good;
  results.print(good);
  return good ? 0 : 1;
}
