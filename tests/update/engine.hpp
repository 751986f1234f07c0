#pragma once
/// An engine for tests: layers of the plain reference, registered in a `model` on memory that is poisoned, with gaps
/// between rows, and compared with the reference byte for byte.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <wreload/wreload.hpp>

#include "../memory.hpp"
#include "../reference/cold_load.hpp"

namespace wreload::test {

namespace wr = wreload;

/// Throws with the message: fails a doctest case and a RapidCheck property alike.
inline void demand(bool holds, const std::string& text) {
  if (!holds) throw std::runtime_error(text);
}
inline void must(const status& result) { demand(result.ok(), result.message()); }

/// Checks that a call was refused with this code, named this tensor, and wrote nothing.
inline void check_refused(const status& result, error_code code, std::string_view name = {}) {
  CHECK_MESSAGE(result.code == code, "code " << static_cast<int>(result.code) << ": " << result.message());
  CHECK_MESSAGE(result.message().find(name) != std::string::npos, "'" << result.message() << "' names no " << name);
  CHECK(!result.wrote_anything);
}

/// Random bytes from a seed (splitmix64).
class noise {
 public:
  explicit noise(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t end) { return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(end)); }

 private:
  std::uint64_t state_;
};

inline shape shape_of(const reference::dims& sizes) { return shape(std::span<const std::int64_t>(sizes)); }

/// fp32 scales where something happens: zeros, subnormals, ties, products that overflow, infinities, NaNs.
inline constexpr std::uint32_t edge_scales[] = {0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x01000000,
                                                0x0C8CCCCD, 0x3B800000, 0x3DCCCCCD, 0x3F69C71C, 0x3F6B8E39, 0x3F800000,
                                                0x3F808000, 0x3F808001, 0x3F818000, 0x43000000, 0x7B000000, 0x7B924924,
                                                0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0xBF808000};

/// A tensor of random codes; scales are near 2^-8 with an edge value now and then.
inline reference::tensor random_tensor(dtype type, const reference::dims& sizes, bool is_scale, noise& random) {
  reference::tensor made{type, sizes, {}};
  const auto element = static_cast<std::size_t>(bytes_of(type));
  const auto count = static_cast<std::size_t>(reference::product(sizes));
  made.bytes.resize(count * element);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t code = random.next();
    if (is_scale && type != dtype::fp8_ue8m0) {
      const bool edge = random.below(8) == 0;
      const auto usual = static_cast<std::uint32_t>(0x3B000000 + random.below(0x01000000));
      const std::uint32_t scale = edge ? edge_scales[random.below(std::size(edge_scales))] : usual;
      code = type == dtype::bf16 ? scale >> 16 : scale;
    }
    std::memcpy(made.bytes.data() + i * element, &code, element);
  }
  return made;
}

/// How a checkpoint of a model is stored.
enum class stored_as { fp8, bf16, mixed };

/// A random checkpoint for these layers. `mixed`: per tensor.
inline reference::checkpoint random_checkpoint(std::span<const reference::layer> layers, std::uint64_t seed,
                                               stored_as how = stored_as::fp8) {
  noise random(seed);
  reference::checkpoint made;
  for (const reference::layer& layer : layers)
    for (const reference::source& source : reference::sources_of(layer)) {
      if (source.is_scale || made.contains(source.name)) continue;
      if (layer.what == reference::kind::plain) {
        dtype type = layer.type;
        if (how == stored_as::mixed && !layer.accepts.empty() && random.below(2) == 0)
          type = layer.accepts[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(layer.accepts.size())))];
        made[source.name] = random_tensor(type, source.sizes, false, random);
        continue;
      }
      const bool bf16 = how == stored_as::bf16 || (how == stored_as::mixed && random.below(2) == 0);
      made[source.name] = random_tensor(bf16 ? dtype::bf16 : dtype::fp8_e4m3, source.sizes, false, random);
      if (bf16) continue;
      reference::dims grid;
      for (const reference::source& other : reference::sources_of(layer))
        if (other.name == source.scale) grid = other.sizes;
      constexpr dtype scale_types[] = {dtype::fp32, dtype::bf16, dtype::fp8_ue8m0};
      const dtype scale_type = how == stored_as::mixed ? scale_types[random.below(3)] : dtype::fp32;
      made[source.scale] = random_tensor(scale_type, grid, true, random);
    }
  return made;
}

/// What the library is told of a layer.
inline extents extents_of(const reference::layer& of) {
  const auto split = [](reference::cut cut) {
    return cut == reference::cut::column ? parallel::column
           : cut == reference::cut::row  ? parallel::row
                                         : parallel::replicated;
  };
  extents sizes{.inner = shape_of(of.inner), .tp = {of.tp_size, of.tp_rank}, .type = of.type, .scalar = of.scalar};
  for (const dtype type : of.accepts) sizes.accepts |= type;
  if (of.what != reference::kind::plain) sizes.type = dtype::none;
  sizes.split = split(of.shards[0].split);
  for (const reference::shard& part : of.shards) {
    shard told{.module = part.module, .rows = part.rows};
    if (of.what == reference::kind::moe) told.cols = part.cols;
    if (part.checkpoint_rows != part.rows) told.checkpoint_rows = part.checkpoint_rows;
    if (part.tensor_rows != part.checkpoint_rows) told.tensor_rows = part.tensor_rows;
    told.tensor_row_begin = part.tensor_row_begin;
    told.grid_rows = part.grid_rows;
    if (split(part.split) != sizes.split) told.split = split(part.split);
    told.parts = part.parts;
    sizes.shards.push_back(told);
  }
  if (of.what == reference::kind::moe) sizes.experts = expert_slots{of.experts_total, of.experts_local};
  if (!of.runtime_sizes.empty()) sizes.runtime_shape = shape_of(of.runtime_sizes);
  return sizes;
}

/// Calls `visit(Layout{})` for the layout of a layer.
template <class Visit>
void visit_layout(const reference::layer& of, Visit&& visit) {
  const auto is = [&](int rows, int cols) { return of.block_rows == rows && of.block_cols == cols; };
  if (of.what == reference::kind::plain) return visit(Plain{});
  if (of.what == reference::kind::moe) {
    if (is(128, 128)) return visit(Fp8DequantMoe{});
    if (is(2, 3)) return visit(Fp8DequantMoeOf<2, 3>{});
  } else {
    if (is(128, 128)) return visit(Fp8DequantLinear{});
    if (is(64, 64)) return visit(Fp8DequantLinearOf<64, 64>{});
    if (is(1, 128)) return visit(Fp8DequantLinearOf<1, 128>{});
    if (is(128, 1)) return visit(Fp8DequantLinearOf<128, 1>{});
    if (is(2, 3)) return visit(Fp8DequantLinearOf<2, 3>{});
  }
  throw std::logic_error("no layout for the blocks of " + of.name);
}

/// Layers in memory of their own, and the model that knows them.
///
/// Rows lie `gap_elements` elements further apart than they need; all bytes start as poison. `before_seal` may declare
/// twins, ignored and foreign names.
template <class Executor>
class engine {
 public:
  static constexpr std::byte poison{0xA5};

  struct registered {
    reference::runtime_tensor plan = {};
    std::byte* data = nullptr;
    std::int64_t row_bytes = 0;
    std::int64_t row_stride_bytes = 0;
    std::int64_t bytes = 0;  ///< of the allocation
  };

  explicit engine(std::vector<reference::layer> layers, std::int64_t gap_elements = 0)
      : engine(std::move(layers), gap_elements, [](wr::model<Executor>&) {}) {}

  template <class BeforeSeal>
  engine(std::vector<reference::layer> layers, std::int64_t gap_elements, BeforeSeal&& before_seal,
         bool in_arena = mode_under_test() == update_mode::swap)
      : layers_(std::move(layers)), model_(std::make_unique<wr::model<Executor>>()) {
    if (in_arena) memory_.in_arena(arena_bytes(gap_elements));
    for (const reference::layer& layer : layers_)
      visit_layout(layer, [&](auto layout) { register_layer<decltype(layout)>(layer, gap_elements); });
    before_seal(*model_);
    if (memory_.arena() != nullptr) must(model_->use(*memory_.arena()));
    must(model_->seal());
  }

  wr::model<Executor>& model() { return *model_; }
  test_memory<Executor>& memory() { return memory_; }
  const std::vector<reference::layer>& layers() const { return layers_; }
  const std::vector<registered>& tensors() const { return tensors_; }
  const registered& tensor(std::string_view name) const {
    for (const registered& each : tensors_)
      if (each.plan.name == name) return each;
    throw std::logic_error("no tensor " + std::string(name));
  }

  /// Opens an update; throws where `start` refuses.
  update<Executor> start(const start_options& options = {}) {
    status refused;
    update<Executor> opened = model_->start(in_mode_under_test(options), &refused);
    must(refused);
    return opened;
  }
  update<Executor> start_partial(std::span<const std::string_view> names) {
    return start({.scope = update_scope::partial(names)});
  }

  /// A source tensor in memory that `load` can read.
  tensor_ref place(const reference::tensor& from) {
    const placed_source at = memory_.place(from.bytes.data(), static_cast<std::int64_t>(from.bytes.size()));
    return {.data = at.data, .type = from.type, .extents = shape_of(from.sizes), .memory = at.memory};
  }

  /// Sends whole tensors, in the order of their names (weights before their scales).
  template <class Update>
  status send(Update& to, const reference::checkpoint& all) {
    for (const auto& [name, value] : all)
      if (status refused = to.load(name, place(value)); !refused.ok()) return refused;
    return {};
  }
  template <class Update>
  status send(Update& to, const reference::checkpoint& all, std::string_view name) {
    return to.load(name, place(all.at(std::string(name))));
  }

  /// A complete update of whole tensors; throws where anything is refused.
  void reload(const reference::checkpoint& all) {
    update<Executor> open = start();
    must(send(open, all));
    must(open.finish());
    memory_.drop_sources();
  }
  void reload_partial(const reference::checkpoint& some) {
    std::vector<std::string_view> names;
    for (const auto& entry : some) names.push_back(entry.first);
    update<Executor> open = start_partial(names);
    must(send(open, some));
    must(open.finish());
    memory_.drop_sources();
  }

  /// Every byte of every allocation, gaps and retired tensors too.
  std::vector<std::vector<std::byte>> image() const {
    std::vector<std::vector<std::byte>> all;
    for (const registered& each : tensors_) {
      all.emplace_back(static_cast<std::size_t>(each.bytes));
      memory_.read(all.back().data(), each.data, each.bytes);
    }
    return all;
  }

  /// Dense bytes of one tensor.
  std::vector<std::byte> dense(const registered& of) const {
    std::vector<std::byte> whole(static_cast<std::size_t>(of.bytes));
    memory_.read(whole.data(), of.data, of.bytes);
    std::vector<std::byte> rows;
    for (std::int64_t r = 0; r < of.plan.rows; ++r)
      rows.insert(rows.end(), whole.begin() + r * of.row_stride_bytes,
                  whole.begin() + r * of.row_stride_bytes + of.row_bytes);
    return rows;
  }
  std::vector<std::byte> dense(std::string_view name) const { return dense(tensor(name)); }

  /// The first difference to a cold start from this checkpoint (retired tensors aside), or to poison in the gaps and
  /// guards; empty if there is none.
  std::string difference(const reference::checkpoint& logical) const {
    for (const registered& each : tensors_) {
      if (each.plan.retired) continue;
      const std::vector<std::byte> expected = reference::cold_bytes(each.plan, logical);
      const std::vector<std::byte> found = dense(each);
      if (expected.size() != found.size()) return each.plan.name + ": another size than the reference";
      for (std::size_t i = 0; i < found.size(); ++i)
        if (found[i] != expected[i]) {
          const auto at = static_cast<std::int64_t>(i);
          return each.plan.name + ": row " + std::to_string(at / each.row_bytes) + ", byte " +
                 std::to_string(at % each.row_bytes) + " expected " +
                 std::to_string(std::to_integer<int>(expected[i])) + ", got " +
                 std::to_string(std::to_integer<int>(found[i]));
        }
    }
    return disturbed();
  }
  /// The first gap or guard byte that somebody wrote.
  std::string disturbed() const {
    const auto all = image();
    for (std::size_t t = 0; t < all.size(); ++t)
      for (std::size_t i = 0; i < all[t].size(); ++i)
        if (static_cast<std::int64_t>(i) % tensors_[t].row_stride_bytes >= tensors_[t].row_bytes && all[t][i] != poison)
          return tensors_[t].plan.name + ": gap byte " + std::to_string(i) + " was written";
    return memory_.guards_intact() ? "" : "a byte outside an allocation was written";
  }

  void demand_cold(const reference::checkpoint& logical) const {
    const std::string found = difference(logical);
    demand(found.empty(), found);
  }

  /// What the engine would tell `start` now.
  std::vector<tensor_address> addresses() const {
    std::vector<tensor_address> list;
    for (const registered& each : tensors_)
      list.push_back({each.plan.name, each.data, each.plan.type, shape_of(each.plan.sizes),
                      each.row_stride_bytes == each.row_bytes ? 0 : each.row_stride_bytes});
    return list;
  }

 private:
  /// With room for guards and alignment.
  std::int64_t arena_bytes(std::int64_t gap_elements) const {
    std::int64_t bytes = 4096;
    for (const reference::layer& layer : layers_)
      for (const reference::runtime_tensor& each : reference::runtime_of(layer))
        bytes += each.rows * (each.cols + gap_elements) * bytes_of(each.type) + 1024;
    return bytes;
  }

  template <class Layout>
  void register_layer(const reference::layer& layer, std::int64_t gap_elements) {
    const extents sizes = extents_of(layer);
    status refused;
    const std::vector<storage_need> needs = storage_plan<Layout>(layer.name, sizes, &refused);
    must(refused);
    std::vector<storage> memory;
    std::vector<reference::runtime_tensor> plans = reference::runtime_of(layer);
    demand(needs.size() == plans.size(), layer.name + ": another number of params than the reference");
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const std::int64_t row_bytes = plans[i].cols * bytes_of(plans[i].type);
      demand(needs[i].name == plans[i].name && needs[i].type == plans[i].type && needs[i].retired == plans[i].retired,
             needs[i].name + ": expected " + plans[i].name);
      if (plans[i].elements.empty()) {  // a rank without experts: the reference has no say in the shape of nothing
        demand(needs[i].bytes == 0, needs[i].name + ": expected no bytes");
        const auto planned = needs[i].extents.dims();
        plans[i].sizes.assign(planned.begin(), planned.end());
      }
      demand(needs[i].extents == shape_of(plans[i].sizes) && needs[i].rows == plans[i].rows &&
                 (plans[i].rows == 0 || needs[i].row_stride_bytes == row_bytes),
             needs[i].name + ": planned as " + to_string(needs[i].extents) + ", the reference says " +
                 to_string(shape_of(plans[i].sizes)));
      const std::int64_t stride = row_bytes + gap_elements * bytes_of(plans[i].type);
      registered made{std::move(plans[i]), nullptr, row_bytes, stride, 0};
      made.bytes = made.plan.rows * stride;
      made.data = memory_.allocate(made.bytes, poison);
      memory.emplace_back(made.data, gap_elements == 0 ? 0 : stride);
      tensors_.push_back(std::move(made));
    }
    must(model_->add(Layout::specs, layer.name, sizes, memory));
  }

  test_memory<Executor> memory_ = {};
  std::vector<reference::layer> layers_;
  std::vector<registered> tensors_ = {};
  std::unique_ptr<wr::model<Executor>> model_;
};

/// Shorthands for hand-written layers.
inline reference::shard whole_shard(std::string module, std::int64_t rows,
                                    reference::cut split = reference::cut::whole) {
  return {.module = std::move(module), .rows = rows, .checkpoint_rows = rows, .tensor_rows = rows, .split = split};
}
inline reference::layer linear(std::string name, std::vector<reference::shard> shards, std::int64_t cols,
                               int block_rows = 2, int block_cols = 3) {
  return {.what = reference::kind::linear,
          .name = std::move(name),
          .shards = std::move(shards),
          .inner = {cols},
          .block_rows = block_rows,
          .block_cols = block_cols};
}
inline reference::layer linear(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return linear(name, {whole_shard(name, rows)}, cols);
}
inline reference::layer plain(const std::string& name, reference::dims sizes, dtype type = dtype::bf16,
                              std::vector<dtype> accepts = {}) {
  reference::layer made{.name = name,
                        .shards = {whole_shard(name, sizes.empty() ? 1 : sizes[0])},
                        .type = type,
                        .accepts = std::move(accepts),
                        .scalar = sizes.empty()};
  for (std::size_t i = 1; i < sizes.size(); ++i) made.inner.push_back(sizes[i]);
  return made;
}

/// A small model with ragged blocks: a fused FP8 layer `qkv` (q 5 rows, kv 4 rows, 7 columns, blocks 2 x 3), `o_proj`
/// (6 x 7), a norm, a widened bias, a scalar.
inline std::vector<reference::layer> small_model() {
  return {linear("qkv", {whole_shard("q", 5), whole_shard("kv", 4)}, 7), linear("o_proj", 6, 7),
          plain("norm.weight", {7}), plain("bias", {3}, dtype::fp32, {dtype::bf16}), plain("step", {}, dtype::i64)};
}

}  // namespace wreload::test
