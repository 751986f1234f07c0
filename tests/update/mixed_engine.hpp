#pragma once
/// An engine for tests of whole transactions, in any mode: a model of six mixed layers in an arena, on an executor of
/// which any operation can be made to fail.
///
///   qkv      fused FP8 linear over BF16, rows apart       norm    a plain BF16 vector
///   experts  FP8 experts over BF16, rows apart            embed   BF16, with a second name `lm_head.weight`
///   mlp      fused NVFP4 linear: swizzled alias, alpha, kept input scales
///   attn     BF16 sinks, an FP32 shadow and a total by launchers, a kept scalar and its reciprocal, a static table

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "injecting_executor.hpp"
#include "nvfp4_engine.hpp"

namespace wreload::test {

namespace mixed {
struct sinks { static constexpr std::string_view name = "sinks"; };
struct sinks_fp32 { static constexpr std::string_view name = "sinks_fp32"; };
struct total { static constexpr std::string_view name = "total"; };
struct scalar { static constexpr std::string_view name = "scalar"; };
struct inverse { static constexpr std::string_view name = "inverse"; };
struct table { static constexpr std::string_view name = "table"; };

/// Computes on host copies. `Body::compute(sources, result)` on dense vectors.
template <class Executor, class Body>
struct launched : Body {
  static status launch(stream_ref stream, std::span<const runtime_tensor> from, const runtime_tensor& to) {
    if (fault_plan* plan = fault_plan::of_this_thread(); plan != nullptr)
      if (status failed = plan->try_to("launch"); !failed.ok()) return failed;
    std::vector<std::vector<std::byte>> sources;
    for (const runtime_tensor& each : from) {
      const std::int64_t bytes = each.extents.elements() * bytes_of(each.type);
      sources.emplace_back(static_cast<std::size_t>(bytes));
      launch_memory<Executor>::read(stream, sources.back().data(), each.data, bytes);
    }
    std::vector<std::byte> result(static_cast<std::size_t>(to.extents.elements() * bytes_of(to.type)));
    Body::compute(sources, result);
    launch_memory<Executor>::write(stream, to.data, result.data(), static_cast<std::int64_t>(result.size()));
    return {};
  }
};
struct widening {
  static constexpr dtype type = dtype::fp32;
  static shape extents(std::span<const shape> from) { return from[0]; }
  static void compute(const std::vector<std::vector<std::byte>>& from, std::vector<std::byte>& to) {
    for (std::size_t i = 0; i < to.size() / 4; ++i) {
      std::memset(&to[4 * i], 0, 2);
      std::memcpy(&to[4 * i + 2], &from[0][2 * i], 2);
    }
  }
};
struct folding {
  static constexpr dtype type = dtype::fp32;
  static shape extents(std::span<const shape>) { return {}; }
  static void compute(const std::vector<std::vector<std::byte>>& from, std::vector<std::byte>& to) {
    std::uint32_t sum = 0;  // of codes: NaN or not
    for (const auto& bytes : from)
      for (std::size_t i = 0; i < bytes.size(); i += 4) {
        std::uint32_t code = 0;
        std::memcpy(&code, &bytes[i], 4);
        sum = sum * 31 + code;
      }
    std::memcpy(to.data(), &sum, 4);
  }
};

template <class Executor>
struct Attention
    : ParamLayout<Derived<total, Bind, Launch<launched<Executor, folding>, sinks_fp32, inverse>>,
                  Derived<sinks_fp32, Bind, Launch<launched<Executor, widening>, sinks>>,
                  Derived<inverse, Bind, Reciprocal<Max<scalar, Across<shards>>>>, Param<sinks, StorageView<bf16>>,
                  Param<scalar, PerShard<fp32>, Kept>, Param<table, StorageView<fp32>, Static>> {};
}  // namespace mixed

inline reference::layer experts_layer(std::string name, std::int64_t count, std::int64_t width, std::int64_t hidden) {
  reference::layer made{.what = reference::kind::moe, .name = std::move(name), .block_rows = 2, .block_cols = 3};
  for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
    const bool down = module[0] == 'd';
    made.shards.push_back(whole_shard(module, down ? hidden : width));
    made.shards.back().cols = down ? width : hidden;
  }
  made.experts_total = count;
  for (std::int64_t e = 0; e < count; ++e) made.experts_local.push_back(e);
  return made;
}

template <class Executor>
class mixed_engine {
 public:
  using executor_type = injecting_executor<Executor>;
  using image_type = std::vector<std::byte>;

  /// Not sealed. On the device of a rank, which the calling thread has to use from here on.
  explicit mixed_engine(int rank = 0) : mixed_engine(rank, options_of(rank)) {}

  /// A sealed one.
  static std::unique_ptr<mixed_engine> make(int rank = 0) {
    auto made = std::make_unique<mixed_engine>(rank);
    must(made->model().seal());
    return made;
  }
  mixed_engine(const mixed_engine&) = delete;             // the model points to its parts
  mixed_engine& operator=(const mixed_engine&) = delete;

  fault_plan plan = {};  ///< of the executor, the arena and the launchers

  wr::model<executor_type>& model() { return model_; }
  test_memory<Executor>& memory() { return memory_; }

  static const std::vector<reference::layer>& layers() {
    static const std::vector<reference::layer> all = {linear("qkv", {whole_shard("q", 5), whole_shard("kv", 4)}, 7),
                                                      experts_layer("experts", 2, 3, 5), plain("norm.weight", {7}),
                                                      plain("embed.weight", {4, 3})};
    return all;
  }
  static const nv::layer& linear4() {
    static const nv::layer one = nvfp4_linear("mlp", {{"mlp.gate", 20}, {"mlp.up", 12}}, 32);
    return one;
  }
  static const std::set<std::string>& kept_names() {
    static const std::set<std::string> names = {"attn.scalar", "mlp.gate.input_scale", "mlp.up.input_scale"};
    return names;
  }
  /// The runtime tensor that a kept name lands in, and its place there, in bytes.
  static std::pair<std::string, std::size_t> place_of_kept(const std::string& name) {
    if (name == "attn.scalar") return {name, 0};
    return {"mlp.input_scale", name == "mlp.gate.input_scale" ? 0 : 4};
  }

  /// A random checkpoint; never with `lm_head.weight`, which is another name of `embed.weight`.
  static reference::checkpoint checkpoint_of(std::uint64_t seed) {
    reference::checkpoint all = random_checkpoint(layers(), seed, seed % 2 == 0 ? stored_as::fp8 : stored_as::mixed);
    all.merge(nvfp4_checkpoint({linear4()}, seed + 100));
    noise random(seed + 200);
    all["attn.sinks"] = random_tensor(dtype::bf16, {3}, false, random);
    all["attn.scalar"] = tensor_of<float>(dtype::fp32, {}, {1.5F + static_cast<float>(seed)});
    for (const char* each : {"gate", "up"})  // no edge values: two seeds never agree
      all["mlp." + std::string(each) + ".input_scale"] =
          tensor_of<float>(dtype::fp32, {}, {0.25F + static_cast<float>(seed) * (each[0] == 'g' ? 1.F : 1.25F)});
    return all;
  }

  /// Every byte of the live addresses that belongs to a tensor, a gap or a guard. Waits for the device.
  image_type image() const {
    test_device<Executor>::synchronize();
    image_type all(static_cast<std::size_t>(used_));
    memory_.read(all.data(), pages_.data(), used_);
    return all;
  }
  /// The first difference to a cold start from this checkpoint, retired tensors aside, or to what lies between tensors;
  /// empty if there is none.
  std::string difference(const reference::checkpoint& logical) const {
    const auto expected = cold_image(logical);
    const image_type now = image();
    for (const auto& [name, bytes] : expected) {
      const std::vector<std::byte> found = dense(now, name);
      if (found.size() != bytes.size()) return name + ": another size than the reference";
      for (std::size_t i = 0; i < bytes.size(); ++i)
        if (found[i] != bytes[i])
          return name + ": byte " + std::to_string(i) + " expected " + std::to_string(std::to_integer<int>(bytes[i])) +
                 ", got " + std::to_string(std::to_integer<int>(found[i]));
    }
    return {};
  }
  /// The first byte between tensors that is not as it was; empty if there is none.
  std::string disturbed() const {
    image_type now = image();
    for (const auto& [name, each] : tensors_)
      for (std::int64_t r = 0; r < each.rows; ++r)
        std::fill_n(now.begin() + (each.data - pages_.data()) + r * each.stride, each.row_bytes, std::byte{0xA5});
    const auto found = std::find_if(now.begin(), now.end(), [](std::byte b) { return b != std::byte{0xA5}; });
    return found == now.end() ? "" : "byte " + std::to_string(found - now.begin()) + " outside the tensors was written";
  }
  /// Bytes of one kept value.
  std::vector<std::byte> kept_value(const std::string& name) const {
    const auto [tensor_name, first] = place_of_kept(name);
    const auto bytes = dense(image(), tensor_name);
    return {bytes.begin() + static_cast<std::ptrdiff_t>(first), bytes.begin() + static_cast<std::ptrdiff_t>(first) + 4};
  }
  /// What the engine itself puts into its static table.
  void write_table() {
    const registered& table = tensor("attn.table");
    memory_.write(table.data, static_bytes.data(), table.rows * table.row_bytes);
  }

  /// Writes again what lies between tensors, which new pages have lost.
  void poison_gaps() {
    image_type now = image();
    const image_type old = now;
    std::fill(now.begin(), now.end(), std::byte{0xA5});
    for (const auto& [name, each] : tensors_)
      for (std::int64_t r = 0; r < each.rows; ++r) {
        const std::int64_t first = each.data - pages_.data() + r * each.stride;
        std::copy_n(old.begin() + first, each.row_bytes, now.begin() + first);
      }
    memory_.write(pages_.data(), now.data(), used_);
  }

  tensor_ref place(const reference::tensor& from) {
    const placed_source at = memory_.place(from.bytes.data(), static_cast<std::int64_t>(from.bytes.size()));
    return {.data = at.data, .type = from.type, .extents = shape_of(from.sizes), .memory = at.memory};
  }

  /// Sends everything, each piece in its own way: on two lanes, cut in two, behind an event, under the second name, or
  /// written by the test itself where `landing` says. `tried` receives the names whose load was tried. `turn` rotates the
  /// order.
  template <class Update>
  status deliver(Update& open, const reference::checkpoint& all, std::size_t turn = 0, std::set<std::string>* tried = nullptr) {
    std::vector<std::string> names;
    for (const auto& entry : all) names.push_back(entry.first);
    std::rotate(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(turn % names.size()), names.end());
    auto second = open.lane(memory_.stream(1));
    std::size_t index = 0;
    for (const std::string& name : names) {
      if (tried != nullptr) tried->insert(name);
      status result;
      if (name == "norm.weight")
        result = write_in_place(open, name, all.at(name));
      else if (name == "kv.weight")
        result = load_halves(open, second, name, all.at(name));
      else if (name == "embed.weight")
        result = load_twins(open, second, all.at(name));
      else if (index % 3 == 0)
        result = second.load(name, place(all.at(name)));
      else if (index % 3 == 1)
        result = load_behind_event(open, name, all.at(name));
      else
        result = open.load(name, place(all.at(name)));
      if (!result.ok()) return result;
      ++index;
    }
    return {};
  }

  /// Sends whole tensors, one by one; for updates of any kind of handle.
  template <class Update>
  status deliver_whole(Update& open, const reference::checkpoint& all) {
    for (const auto& [name, value] : all) {
      const piece one{.name = name, .tensor = place(value)};
      if (status failed = open.load({&one, 1}); !failed.ok()) return failed;
    }
    return {};
  }

  /// A complete update in mode direct; throws where anything is refused.
  void reload(const reference::checkpoint& all) {
    status refused;
    auto open = model_.start({.stream = memory_.stream(0)}, &refused);
    must(refused);
    must(deliver(open, all));
    must(open.finish());
    memory_.drop_sources();
  }

  /// Names that a partial update of some of everything declares, and what it sends.
  static reference::checkpoint part_of(const reference::checkpoint& all) {
    reference::checkpoint some;
    for (const auto& entry : all)
      for (const char* prefix : {"q.", "kv.", "norm", "experts.1.down_proj.", "mlp.up.weight", "mlp.gate.input_scale", "embed"})
        if (entry.first.starts_with(prefix)) some.insert(entry);
    return some;
  }
  static std::vector<std::string> names_of(const reference::checkpoint& some) {
    std::vector<std::string> names;
    for (const auto& entry : some) names.push_back(entry.first);
    if (some.contains("embed.weight")) names.emplace_back("lm_head.weight");
    return names;
  }

 private:
  static constexpr std::int64_t arena_bytes = std::int64_t{48} << 10;
  static constexpr std::int64_t guard_bytes = 64;

  struct registered {
    std::byte* data = nullptr;
    std::int64_t rows = 0;
    std::int64_t row_bytes = 0;
    std::int64_t stride = 0;
  };

  static inline const std::vector<std::byte> static_bytes = std::vector<std::byte>(12, std::byte{0x5A});

  static auto options_of(int rank) {
    test_device<Executor>::select(rank % test_device<Executor>::count());
    if constexpr (requires { test_device<Executor>::options(rank); })
      return std::make_tuple(test_device<Executor>::options(rank));
    else
      return std::make_tuple();
  }
  template <class... Options>
  mixed_engine(int, const std::tuple<Options...>& options) : model_(plan, std::get<Options>(options)...) {
    pages_.plan = &plan;
    must(pages_.open({.bytes = arena_bytes, .piece_bytes = arena_bytes, .spare = true}));
    const std::vector<std::byte> poison(static_cast<std::size_t>(pages_.bytes()), std::byte{0xA5});
    for (std::byte* each : {pages_.data(), pages_.spare()}) memory_.write(each, poison.data(), pages_.bytes());
    must(model_.use(pages_));
    for (const reference::layer& each : layers()) visit_layout(each, [&](auto of) { add<decltype(of)>(each.name, extents_of(each), 4); });
    add<Nvfp4Linear>(linear4().name, extents_of(linear4()), 0);
    add<mixed::Attention<Executor>>("attn", vector_of("attn", 3), 0);
    model_.same_as("embed.weight", "lm_head.weight");
    const registered& table = tensor("attn.table");
    memory_.write(table.data, static_bytes.data(), table.rows * table.row_bytes);
  }

  template <class Layout>
  void add(const std::string& layer, const extents& sizes, std::int64_t gap_elements) {
    status refused;
    std::vector<storage> places;
    for (const storage_need& need : storage_plan<Layout>(layer, sizes, &refused)) {
      const std::int64_t row_bytes = need.rows == 0 ? 0 : need.bytes / need.rows;
      const std::int64_t stride = row_bytes + gap_elements * bytes_of(need.type);
      std::byte* data = pages_.take(need.rows * stride + guard_bytes, 64);
      demand(data != nullptr, "the arena is too small");
      used_ = data + need.rows * stride + guard_bytes - pages_.data();
      tensors_[need.name] = {data, need.rows, row_bytes, stride};
      places.emplace_back(data, gap_elements == 0 ? 0 : stride);
    }
    must(refused);
    must(model_.add(Layout::specs, layer, sizes, places));
  }

  const registered& tensor(const std::string& name) const { return tensors_.at(name); }
  std::vector<std::byte> dense(const image_type& all, const std::string& name) const {
    const registered& of = tensor(name);
    std::vector<std::byte> rows;
    for (std::int64_t r = 0; r < of.rows; ++r) {
      const auto first = all.begin() + (of.data - pages_.data()) + r * of.stride;
      rows.insert(rows.end(), first, first + of.row_bytes);
    }
    return rows;
  }

  static std::map<std::string, std::vector<std::byte>> cold_image(const reference::checkpoint& logical) {
    std::map<std::string, std::vector<std::byte>> all;
    for (const reference::layer& layer : layers())
      for (const reference::runtime_tensor& each : reference::runtime_of(layer))
        if (!each.retired) all[each.name] = reference::cold_bytes(each, logical);
    all.merge(nv::cold_image({linear4()}, logical));
    all.erase("mlp.weight_scale_2");  // retired
    all["attn.sinks"] = logical.at("attn.sinks").bytes;
    all["attn.scalar"] = logical.at("attn.scalar").bytes;
    all["attn.table"] = static_bytes;
    nv::put_floats(all, "attn.inverse", {nv::inverse(nv::scalar(logical, "attn.scalar"))});
    all["attn.sinks_fp32"].resize(12);
    mixed::widening::compute({all["attn.sinks"]}, all["attn.sinks_fp32"]);
    all["attn.total"].resize(4);
    mixed::folding::compute({all["attn.sinks_fp32"], all["attn.inverse"]}, all["attn.total"]);
    return all;
  }

  template <class Update>
  status write_in_place(Update& open, const std::string& name, const reference::tensor& from) {
    direct_landing where;
    if (status refused = open.landing(name, {}, from.type, &where); !refused.ok()) return refused;
    const std::int64_t row_bytes = where.cols * bytes_of(where.type);
    for (std::int64_t r = 0; r < where.rows; ++r)
      memory_.write(where.data + r * where.row_stride_bytes, from.bytes.data() + r * row_bytes, row_bytes);
    const std::string_view names[] = {name};
    return open.adopt(names, load_form::checkpoint);
  }
  template <class Update, class Lane>
  status load_halves(Update& open, Lane& second, const std::string& name, const reference::tensor& from) {
    const shape whole = shape_of(from.sizes);
    for (int half = 0; half < 2; ++half) {
      const std::int64_t begin = half == 0 ? 0 : whole[0] / 2, end = half == 0 ? whole[0] / 2 : whole[0];
      tensor_ref rows = place(from);
      rows.data = static_cast<const std::byte*>(rows.data) + begin * whole[1] * bytes_of(from.type);
      rows.extents = {end - begin, whole[1]};
      const box part = box::rows(whole, begin, end);
      if (status failed = half == 0 ? open.load(name, rows, part) : second.load(name, rows, part); !failed.ok()) return failed;
    }
    return {};
  }
  template <class Update, class Lane>
  status load_twins(Update& open, Lane& second, const reference::tensor& from) {
    if (status failed = second.load("lm_head.weight", place(from)); !failed.ok()) return failed;
    return open.load("embed.weight", place(from));
  }
  template <class Update>
  status load_behind_event(Update& open, const std::string& name, const reference::tensor& from) {
    piece one{.name = name, .tensor = place(from)};
    one.tensor.memory = test_device<Executor>::readable(one.tensor.memory);
    return open.load({&one, 1}, one.tensor.memory == memory_kind::pageable ? event_ref{} : test_device<Executor>::event());
  }

  test_memory<Executor> memory_ = {};
  typename executor_type::arena pages_ = {};
  std::map<std::string, registered> tensors_ = {};
  std::int64_t used_ = 0;
  wr::model<executor_type> model_;
};

}  // namespace wreload::test
