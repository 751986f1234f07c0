#pragma once
/// NVFP4 layers of the plain reference in a model on poisoned memory, and generators of such layers.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <wreload/layouts/nvfp4_linear.hpp>
#include <wreload/layouts/nvfp4_moe.hpp>

#include "../property.hpp"
#include "../reference/nvfp4.hpp"
#include "generators.hpp"
#include "layout_engine.hpp"

namespace wreload::test {

namespace nv = reference::nvfp4;

/// Calls `visit(Layout{})` for the layout of a layer.
template <class Visit>
void visit_nvfp4(const nv::layer& of, Visit&& visit) {
  const bool cutlass = of.to == nv::backend::cutlass;
  if (of.compressed) return visit(Nvfp4LinearCompressed{});
  if (!of.stacked) return cutlass ? visit(Nvfp4Linear{}) : visit(Nvfp4LinearTrtllm{});
  if (of.gated) return cutlass ? visit(Nvfp4Moe{}) : visit(Nvfp4MoeTrtllm{});
  return cutlass ? visit(Nvfp4MoeUngated{}) : visit(Nvfp4MoeUngatedTrtllm{});
}

/// What the library is told of a layer: columns in bytes.
inline extents extents_of(const nv::layer& of) {
  extents sizes{.tp = {of.tp_size, of.tp_rank}};
  if (of.split == reference::cut::column) sizes.split = parallel::column;
  if (of.split == reference::cut::row) sizes.split = parallel::row;
  if (!of.stacked) {
    for (const auto& [module, rows] : of.modules) sizes.shards.push_back({.module = module, .rows = rows});
    sizes.inner = {of.hidden / 2};
    return sizes;
  }
  for (const std::string& module : nv::first_modules(of))
    sizes.shards.push_back({.module = module, .rows = of.width, .cols = of.hidden / 2});
  sizes.shards.push_back({.module = "down_proj", .rows = of.hidden, .cols = of.width / 2});
  if (of.split == reference::cut::column) sizes.shards.back().split = parallel::row;
  sizes.experts = expert_slots{of.experts_total, of.experts_local};
  return sizes;
}

inline nv::layer nvfp4_linear(std::string name, std::vector<std::pair<std::string, std::int64_t>> modules,
                              std::int64_t hidden, nv::backend to = nv::backend::cutlass) {
  return {.name = std::move(name), .to = to, .modules = std::move(modules), .hidden = hidden};
}
inline nv::layer nvfp4_experts(std::string name, std::int64_t count, std::int64_t width, std::int64_t hidden,
                               nv::backend to = nv::backend::cutlass) {
  nv::layer made{.name = std::move(name), .to = to, .hidden = hidden, .stacked = true, .width = width, .experts_total = count};
  for (std::int64_t expert = 0; expert < count; ++expert) made.experts_local.push_back(expert);
  return made;
}

/// A random checkpoint: all codes of weights and block scales; scalars near 2^-8, now and then an edge value. The
/// modules of a linear layer have one `weight_scale_2` where `equal_globals`.
inline reference::checkpoint nvfp4_checkpoint(const std::vector<nv::layer>& layers, std::uint64_t seed,
                                              bool equal_globals = true) {
  noise random(seed);
  reference::checkpoint made;
  for (const nv::layer& of : layers) {
    const reference::tensor common = random_tensor(dtype::fp32, {}, true, random);
    for (const nv::module_of& module : nv::modules_of(of)) {
      if (made.contains(module.name + ".weight")) continue;  // another layer reads it, too
      made[module.name + ".weight"] = random_tensor(dtype::u8, {module.rows, module.cols / 2}, false, random);
      made[module.name + ".weight_scale"] =
          random_tensor(dtype::fp8_e4m3, {module.rows, module.cols / 16}, false, random);
      made[module.name + "." + of.global_scale()] =
          equal_globals && !of.stacked ? common : random_tensor(dtype::fp32, {}, true, random);
      made[module.name + "." + of.input_scale()] = random_tensor(dtype::fp32, {}, true, random);
    }
  }
  return made;
}

/// The tensors of a checkpoint whose name ends so (or do not).
inline reference::checkpoint named(const reference::checkpoint& all, std::string_view ending, bool wanted = true) {
  reference::checkpoint some;
  for (const auto& [name, value] : all)
    if (name.ends_with(ending) == wanted) some[name] = value;
  return some;
}

inline reference::checkpoint over(reference::checkpoint older, const reference::checkpoint& newer) {
  for (const auto& [name, value] : newer) older[name] = value;
  return older;
}

template <class Executor>
class nvfp4_engine : public layout_engine<Executor> {
 public:
  explicit nvfp4_engine(std::vector<nv::layer> layers) : layers_(std::move(layers)) {
    for (const nv::layer& of : layers_)
      visit_nvfp4(of, [&](auto layout) { this->template add<decltype(layout)>(of.name, extents_of(of)); });
    must(this->model().seal());
  }

  const std::vector<nv::layer>& layers() const { return layers_; }

  template <class Update>
  void send(Update& open, const reference::checkpoint& all) {
    for (const auto& [name, value] : all) must(open.load(name, this->place(value)));
  }
  void reload(const reference::checkpoint& all) {
    update<Executor> open = this->start();
    send(open, all);
    must(open.finish());
    this->memory().drop_sources();
  }
  void reload_partial(const reference::checkpoint& some) {
    const std::vector<std::string_view> names = names_of(some);
    update<Executor> open = this->start({.scope = update_scope::partial(names)});
    send(open, some);
    must(open.finish());
    this->memory().drop_sources();
  }
  static std::vector<std::string_view> names_of(const reference::checkpoint& some) {
    std::vector<std::string_view> names;
    for (const auto& entry : some) names.push_back(entry.first);
    return names;
  }

  /// Fills a runtime tensor with poison, so that whoever writes it shows.
  void spoil(std::string_view name) {
    const std::vector<std::byte> poison(this->bytes(name).size(), std::byte{0xA5});
    this->memory().write(this->data(name), poison.data(), static_cast<std::int64_t>(poison.size()));
  }
  bool is_spoiled(std::string_view name) const {
    for (const std::byte each : this->bytes(name))
      if (each != std::byte{0xA5}) return false;
    return true;
  }

  /// Demands every byte of storage, retired tensors and pads too, as after a cold start from this checkpoint.
  void demand_cold(const reference::checkpoint& logical) {
    const nv::image expected = nv::cold_image(layers_, logical);
    const auto found = this->image();
    demand(found.size() == expected.size(), "another number of tensors than the reference");
    for (const auto& [name, bytes] : expected) {
      demand(found.contains(name), "no tensor " + name);
      const auto& have = found.at(name);
      demand(have.size() == bytes.size(), name + ": " + std::to_string(have.size()) + " bytes, the reference says " +
                                              std::to_string(bytes.size()));
      for (std::size_t i = 0; i < bytes.size(); ++i)
        demand(have[i] == bytes[i], name + ": byte " + std::to_string(i) + " expected " +
                                        std::to_string(std::to_integer<int>(bytes[i])) + ", got " +
                                        std::to_string(std::to_integer<int>(have[i])));
    }
    demand(this->memory().guards_intact(), "a byte outside an allocation was written");
  }

 private:
  std::vector<nv::layer> layers_;
};

/// Draws a fused linear layer of odd sizes.
inline nv::layer draw_nvfp4_linear(const std::string& name) {
  nv::layer made{.name = name, .to = one_in(2) ? nv::backend::trtllm : nv::backend::cutlass};
  made.compressed = made.to == nv::backend::cutlass && one_in(4);
  made.tp_size = static_cast<int>(draw_small(1, 3));
  made.tp_rank = static_cast<int>(draw(0, made.tp_size - 1));
  made.split = static_cast<reference::cut>(draw_small(0, 2));
  made.hidden = 16 * draw_small(1, 9) * (made.split == reference::cut::row ? made.tp_size : 1);
  const std::int64_t count = draw_small(1, 3);
  for (std::int64_t i = 0; i < count; ++i)
    made.modules.emplace_back(name + "." + std::string(1, static_cast<char>('a' + i)),
                              draw_size(130) * (made.split == reference::cut::column ? made.tp_size : 1));
  return made;
}

/// Draws stacked experts; some ranks hold some of them, some twice, some none.
inline nv::layer draw_nvfp4_experts(const std::string& name) {
  nv::layer made = nvfp4_experts(name, draw_small(1, 3), 0, 0, one_in(2) ? nv::backend::trtllm : nv::backend::cutlass);
  const bool trtllm = made.to == nv::backend::trtllm;
  made.gated = !one_in(4);
  made.tp_size = static_cast<int>(draw_small(1, 2));
  made.tp_rank = static_cast<int>(draw(0, made.tp_size - 1));
  if (made.tp_size > 1) made.split = reference::cut::column;
  made.width = (trtllm ? (made.gated ? 64 : 128) * draw_small(1, 2) : 16 * draw_small(1, 6)) * made.tp_size;
  made.hidden = trtllm ? 128 : 16 * draw_small(1, 9);
  if (one_in(2)) {
    made.experts_local.clear();
    for (std::int64_t slots = draw_small(0, 3); slots > 0; --slots)
      made.experts_local.push_back(draw(0, made.experts_total - 1));
  }
  return made;
}

/// One to three layers; now and then two that read the same checkpoint tensors, each in its own order.
inline std::vector<nv::layer> draw_nvfp4_model() {
  std::vector<nv::layer> layers;
  for (std::int64_t i = draw_small(0, 1); i >= 0; --i) {
    const std::string name = "layers." + std::to_string(i);
    layers.push_back(one_in(3) ? draw_nvfp4_experts(name) : draw_nvfp4_linear(name));
  }
  if (!layers[0].stacked && !layers[0].compressed && one_in(4)) {
    layers.push_back(layers[0]);
    layers.back().name = "copy";
    layers.back().to = one_in(2) ? nv::backend::trtllm : nv::backend::cutlass;
  }
  return layers;
}

/// Some tensors of a checkpoint, at least one: each NVFP4 tensor may come alone.
inline reference::checkpoint draw_nvfp4_subset(const reference::checkpoint& all) {
  reference::checkpoint some;
  for (const auto& entry : all)
    if (one_in(3)) some.insert(entry);
  if (some.empty()) some.insert(*all.begin());
  return some;
}

inline std::string in_words(const std::vector<nv::layer>& layers) {
  std::string text;
  for (const nv::layer& of : layers)
    visit_nvfp4(of, [&](auto layout) {
      status refused;
      text += describe<decltype(layout)>(of.name, extents_of(of), &refused) + refused.message() + "\n";
    });
  return text;
}

}  // namespace wreload::test
