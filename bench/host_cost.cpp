// Host cost of a load per tensor: Kimi-K2.5 in NVFP4 as it is stored, 278,219 names, in the library's layouts, for one
// rank alone and for rank 0 of TP 8. Extents are scaled down (hidden 32, experts of 16 rows a rank), so that a tensor
// is small and the books are what is measured. All sources are one small buffer. Rows say whether the host executor
// copied bytes and computed alphas ("copied") or nothing
// ("books").
//
//   host_cost [ROUNDS]       default 3
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
#include "models.hpp"
#include "table.hpp"

namespace wr = wreload;
using bench::demand;
using bench::seconds_now;

namespace {

constexpr std::int64_t all_names = 278'219;
constexpr int layers = bench::models::kimi_dims.layers;
constexpr std::size_t bucket_pieces = 1000;

/// Kimi-K2.5 with matrices of 16 rows a rank.
bench::models::dims small_dims(int ranks) {
  bench::models::dims small = bench::models::kimi_dims;
  const std::int64_t rows = std::int64_t{16} * ranks;
  small.hidden = 32, small.vocab = 4 * rows, small.width = small.dense_width = rows;
  small.q_lora = 16, small.kv_lora = 8, small.rope = 0;
  small.q_rows = small.kv_rows = small.o_cols = rows;
  small.vision_width = 8, small.vision_inner = 32, small.vision_patch = 2, small.vision_grid = 8;
  return small;
}

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
struct named_tensor {
  std::string name = {};
  wr::dtype type = wr::dtype::none;
  wr::shape extents = {};
  int file = 0;
};

/// Adds the model's layers and lists its tensors, in file order.
template <class Model>
class registered {
 public:
  registered(Model& model, int ranks) : model_(model) {
    bench::models::kimi<registered> described(*this, {ranks, 0}, small_dims(ranks));
    described.embedding();
    for (int layer = 0; layer < layers; ++layer) {
      file_ = layer + 1;
      described.layer(layer);
    }
    file_ = layers + 1;
    described.head();
    described.vision();
    const auto before = [](const named_tensor& a, const named_tensor& b) {
      if (a.file != b.file) return a.file < b.file;
      return a.type != b.type ? wr::bytes_of(a.type) > wr::bytes_of(b.type) ||
                                    (wr::bytes_of(a.type) == wr::bytes_of(b.type) && a.type > b.type)
                              : a.name < b.name;
    };
    std::sort(tensors.begin(), tensors.end(), before);
    tensors.shrink_to_fit();
  }

  std::vector<named_tensor> tensors = {};

  template <class Layout>
  void layer(const std::string& name, const wr::extents& sizes) {
    wr::status refused;
    std::vector<wr::storage> places;
    for (const wr::storage_need& need : wr::storage_plan<Layout>(name, sizes, &refused))
      places.emplace_back(memory_.take(static_cast<std::size_t>(need.bytes)));
    demand(refused);
    demand(model_.add(Layout::specs, name, sizes, places));
  }
  void tensor(const std::string& name, wr::dtype type, const wr::shape& extents) {
    tensors.push_back({name, type, extents, file_});
  }

 private:
  Model& model_;
  int file_ = 0;
  untold_memory memory_ = {};
};

template <class Executor>
bool measure(int ranks, const std::string& what, int rounds, bench::table& results) {
  const std::int64_t heap_before = wr::test::heap_now().bytes;
  wr::model<Executor> model;
  registered<wr::model<Executor>> made(model, ranks);
  demand(model.seal());
  std::int64_t model_bytes = wr::test::heap_now().bytes - heap_before;
  const auto count = made.tensors.size();
  if (static_cast<std::int64_t>(count) != all_names) {
    std::fprintf(stderr, "%zu tensors, %lld expected\n", count, static_cast<long long>(all_names));
    return false;
  }
  {
    const std::int64_t before_copy = wr::test::heap_now().bytes;
    const std::vector<named_tensor> list = made.tensors;
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
      const named_tensor& each = made.tensors[i];
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
  const int rounds = count > 1 ? std::max(1, std::atoi(arguments[1])) : 3;
  bench::table results;
  bool good = measure<books_executor>(1, "books, TP 1", rounds, results);
  good = measure<books_executor>(8, "books, rank 0 of TP 8", rounds, results) && good;
  good = measure<wr::host_executor>(8, "copied, rank 0 of TP 8", rounds, results) && good;
  results.print(good);
  return good ? 0 : 1;
}
