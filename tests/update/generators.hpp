#pragma once
/// RapidCheck generators: random models, checkpoints and deliveries. Use them inside a property only. Structure is drawn
/// (so it shrinks); the bytes of tensors come from one drawn seed.

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine.hpp"

namespace wreload::test {

/// A number in [low, high].
inline std::int64_t draw(std::int64_t low, std::int64_t high) {
  return *rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1)));
}
/// The same, shrinking towards `low`.
inline std::int64_t draw_small(std::int64_t low, std::int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));
}
inline bool one_in(std::int64_t chances) { return draw_small(0, chances - 1) == chances - 1 && chances > 1; }
inline std::uint64_t draw_seed() { return static_cast<std::uint64_t>(draw(0, 1 << 30)); }

/// A size up to `most`, often 1, 3, 127 or 129.
inline std::int64_t draw_size(std::int64_t most) {
  constexpr std::int64_t favourites[] = {1, 3, 127, 129};
  const std::int64_t which = draw_small(0, 7);
  if (which < 4 && favourites[which] <= most) return favourites[which];
  return draw_small(1, most);
}

/// Draws one shard of `parts`-fold divisible rows; `tensor` gives what it is part of, if it is fused on disk.
inline reference::shard draw_shard(const std::string& module, int tp_size, reference::cut split, std::int64_t most) {
  reference::shard made{.module = module, .split = split};
  std::int64_t slices = 1;
  if (split == reference::cut::column) {
    slices = tp_size;
    if (tp_size % 2 == 0 && one_in(3)) made.parts = static_cast<int>(slices = tp_size / 2);
    if (made.parts == 0 && one_in(6)) made.parts = static_cast<int>(slices = 1);
  }
  made.rows = draw_size(std::max<std::int64_t>(most / slices, 1)) * slices;
  made.checkpoint_rows = one_in(4) ? draw(0, made.rows) : made.rows;
  made.tensor_rows = made.checkpoint_rows;
  return made;
}

/// Draws a linear layer that may be stored as FP8.
inline reference::layer draw_linear(const std::string& name) {
  constexpr int block_sizes[][2] = {{128, 128}, {2, 3}, {64, 64}, {1, 128}, {128, 1}};
  const auto& block = block_sizes[draw_small(0, 4)];
  const std::int64_t most_rows = block[0] == 2 ? 20 : 140;
  const std::int64_t most_cols = block[1] == 1 ? 8 : block[1] == 3 ? 20 : 140;
  reference::layer made{.what = reference::kind::linear, .name = name, .block_rows = block[0], .block_cols = block[1]};
  made.tp_size = static_cast<int>(draw_small(1, 4));
  made.tp_rank = static_cast<int>(draw(0, made.tp_size - 1));
  const auto split = static_cast<reference::cut>(draw_small(0, 2));
  const std::int64_t slices = split == reference::cut::row ? made.tp_size : 1;
  made.inner = {draw_size(std::max<std::int64_t>(most_cols / slices, 1)) * slices};
  if (split != reference::cut::row && one_in(12)) made.inner = {draw_small(1, 3), draw_small(1, 5)};
  const std::int64_t shards = draw_small(1, 4);
  for (std::int64_t i = 0; i < shards; ++i) {
    const bool replicated = split == reference::cut::column && one_in(4);
    made.shards.push_back(draw_shard(name + "." + std::string(1, static_cast<char>('a' + i)), made.tp_size,
                                     replicated ? reference::cut::whole : split, most_rows / shards));
  }
  if (shards > 1 && one_in(4)) {  // fused on disk
    std::int64_t rows = 0;
    for (reference::shard& part : made.shards) {
      part.module = name + ".fused";
      part.tensor_row_begin = rows;
      rows += part.checkpoint_rows;
    }
    rows += draw_small(0, 3);
    for (reference::shard& part : made.shards) part.tensor_rows = rows;
  }
  if (one_in(4)) {  // grids per group of rows
    const std::int64_t grid = draw(1, std::max<std::int64_t>(made.shards[0].tensor_rows, 1));
    for (reference::shard& part : made.shards) part.grid_rows = grid;
  }
  return made;
}

/// Draws stacked experts; some ranks hold some of them, some twice.
inline reference::layer draw_moe(const std::string& name) {
  reference::layer made{.what = reference::kind::moe, .name = name};
  if (!one_in(4)) made.block_rows = 2, made.block_cols = 3;
  made.tp_size = static_cast<int>(draw_small(1, 2));
  made.tp_rank = static_cast<int>(draw(0, made.tp_size - 1));
  const std::int64_t width = draw_size((made.block_rows == 2 ? 9 : 140)) * made.tp_size;
  const std::int64_t hidden = draw_size((made.block_cols == 3 ? 9 : 140));
  const bool cut = made.tp_size > 1;
  for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
    const bool down = module[0] == 'd';
    reference::shard part = whole_shard(module, down ? hidden : width,
                                        !cut   ? reference::cut::whole
                                        : down ? reference::cut::row
                                               : reference::cut::column);
    part.cols = down ? width : hidden;
    made.shards.push_back(part);
  }
  made.experts_total = draw_small(1, 4);
  if (draw_small(0, 1) == 0) {
    for (std::int64_t e = 0; e < made.experts_total; ++e) made.experts_local.push_back(e);
  } else {
    const std::int64_t slots = draw_small(1, 4);
    for (std::int64_t s = 0; s < slots; ++s) made.experts_local.push_back(draw(0, made.experts_total - 1));
  }
  return made;
}

/// Draws a tensor that runs as it is stored (or widened): any rank from 0 to 4, zero rows too.
inline reference::layer draw_plain(const std::string& name) {
  constexpr dtype types[] = {dtype::bf16, dtype::fp32,     dtype::fp16,   dtype::u8,
                             dtype::i64,  dtype::fp8_e4m3, dtype::boolean};
  const dtype type = types[draw_small(0, 6)];
  reference::layer made = plain(name, {}, type);
  if (type == dtype::fp32)
    made.accepts = {dtype::bf16, dtype::fp16, dtype::fp8_e4m3, dtype::fp8_e5m2, dtype::fp8_ue8m0};
  if (type == dtype::bf16 && one_in(3)) made.accepts = {dtype::fp8_e4m3, dtype::fp8_e5m2};
  const std::int64_t rank = draw_small(0, 4);
  if (rank == 0) return made;
  made.scalar = false;
  made.tp_size = static_cast<int>(draw_small(1, 3));
  made.tp_rank = static_cast<int>(draw(0, made.tp_size - 1));
  const auto split = static_cast<reference::cut>(draw_small(0, 2));
  for (std::int64_t dim = 1; dim < rank; ++dim)
    made.inner.push_back(draw_small(1, rank == 2 ? 60 : 5) *
                         (dim == 1 && split == reference::cut::row ? made.tp_size : 1));
  made.shards.clear();
  const std::int64_t shards = draw_small(1, 3);
  for (std::int64_t i = 0; i < shards; ++i) {
    const std::string module = shards == 1 ? name : name + "." + std::to_string(i);
    made.shards.push_back(draw_shard(module, made.tp_size, split, rank == 1 ? 130 : 20));
    if (one_in(8)) made.shards.back() = {.module = module, .split = split};  // zero rows
  }
  return made;
}

/// Draws a model of one to five layers; now and then a later layer reads the same checkpoint tensors as an earlier one.
inline std::vector<reference::layer> draw_model() {
  std::vector<reference::layer> layers;
  const std::int64_t count = draw_small(1, 5);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = "layers." + std::to_string(i);
    if (i > 0 && one_in(6)) {
      layers.push_back(layers[static_cast<std::size_t>(draw(0, i - 1))]);
      if (layers.back().what != reference::kind::moe) {
        layers.back().name = name;
        layers.back().tp_rank = static_cast<int>(draw(0, layers.back().tp_size - 1));
        continue;
      }
      layers.pop_back();
    }
    const std::int64_t which = draw_small(0, 4);
    layers.push_back(which < 3 ? draw_linear(name) : which == 3 ? draw_plain(name) : draw_moe(name));
  }
  return layers;
}

/// A part of a tensor on its way: its own bytes, strides and place.
struct parcel {
  std::string name = {};
  box part = {};
  dtype type = dtype::none;
  shape extents = {};
  shape strides = {};
  std::vector<std::byte> bytes = {};
  load_form form = load_form::checkpoint;
};

/// Cuts a part out of a tensor and packs it densely, transposed, with a gap between rows, or with every element apart.
inline parcel pack(const std::string& name, const reference::tensor& from, const shape& offset, const shape& size,
                   int packing) {
  parcel made{.name = name, .part = {offset, size}, .type = from.type, .extents = size};
  const int rank = size.rank();
  shape strides = size;
  std::int64_t dense = packing == 3 ? 2 : 1;
  if (packing == 1) {
    for (int dim = 0; dim < rank; ++dim) {
      strides[dim] = dense;
      dense *= size[dim];
    }
  } else {
    for (int dim = rank - 1; dim >= 0; --dim) {
      strides[dim] = dense;
      dense *= size[dim];
      if (packing == 2 && dim == rank - 1) dense += 3;
    }
  }
  if (packing != 0) made.strides = strides;
  const auto element = static_cast<std::size_t>(bytes_of(from.type));
  std::int64_t last = 0;
  for (int dim = 0; dim < rank; ++dim) last += (size[dim] - 1) * strides[dim];
  if (size.elements() == 0) return made;
  made.bytes.resize(static_cast<std::size_t>(last + 1) * element, std::byte{0xEE});
  shape index = size;
  for (int dim = 0; dim < rank; ++dim) index[dim] = 0;
  for (std::int64_t i = 0; i < size.elements(); ++i) {
    std::int64_t source = 0, target = 0;
    for (int dim = 0; dim < rank; ++dim) {
      source = source * from.sizes[static_cast<std::size_t>(dim)] + offset[dim] + index[dim];
      target += index[dim] * strides[dim];
    }
    std::memcpy(made.bytes.data() + static_cast<std::size_t>(target) * element,
                from.bytes.data() + static_cast<std::size_t>(source) * element, element);
    for (int dim = rank - 1; dim >= 0 && ++index[dim] == size[dim]; --dim) index[dim] = 0;
  }
  return made;
}

/// Cuts a tensor into rows, columns or rectangles, at most `2^depth` of them.
inline void cut_into(std::vector<parcel>& out, const std::string& name, const reference::tensor& from,
                     const shape& offset, const shape& size, int depth) {
  std::vector<int> cuttable;
  for (int dim = 0; dim < size.rank(); ++dim)
    if (size[dim] > 1 && size.elements() > 0) cuttable.push_back(dim);
  if (depth == 0 || cuttable.empty() || draw_small(0, 2) == 0) {
    out.push_back(pack(name, from, offset, size, one_in(3) ? static_cast<int>(draw(1, 3)) : 0));
    return;
  }
  const int dim = cuttable[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(cuttable.size()) - 1))];
  const std::int64_t at = draw(1, size[dim] - 1);
  shape first = size, second = size, second_offset = offset;
  first[dim] = at;
  second[dim] = size[dim] - at;
  second_offset[dim] += at;
  cut_into(out, name, from, offset, first, depth - 1);
  cut_into(out, name, from, second_offset, second, depth - 1);
}

/// Draws how a set of tensors is sent: whole or in parts, any order, sometimes under Quark's spelling of a scale.
inline std::vector<parcel> draw_delivery(const reference::checkpoint& tensors) {
  std::vector<parcel> all;
  for (const auto& [name, value] : tensors) {
    std::string spelled = name;
    if (name.ends_with(".weight_scale_inv") && one_in(3)) spelled.resize(name.size() - 4);
    const shape size = shape_of(value.sizes);
    shape offset = size;
    for (int dim = 0; dim < size.rank(); ++dim) offset[dim] = 0;
    const std::size_t first = all.size();
    cut_into(all, spelled, value, offset, size, static_cast<int>(draw_small(0, 3)));
    if (all.size() == first + 1 && !one_in(4)) all.back().part = {};
  }
  noise random(draw_seed());
  for (std::size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1], all[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  return all;
}

/// Sends a delivery: one by one, by id, or in batches; throws where anything is refused.
template <class Engine, class Update>
void send_delivery(Engine& to, Update& open, const std::vector<parcel>& all) {
  const std::int64_t batch = draw_small(0, 4);
  std::vector<piece> pieces;
  for (const parcel& each : all) {
    const placed_source at = to.memory().place(each.bytes.data(), static_cast<std::int64_t>(each.bytes.size()));
    const tensor_ref tensor{at.data, each.type, each.extents, each.strides, at.memory};
    if (batch == 0) {
      must(open.load(each.name, tensor, each.part));
    } else if (batch == 1) {
      must(open.load(to.model().find(each.name), tensor, each.part));
    } else {
      pieces.push_back({.name = each.name, .tensor = tensor, .part = each.part});
      if (static_cast<std::int64_t>(pieces.size()) < batch) continue;
      must(open.load(pieces));
      pieces.clear();
    }
  }
  if (!pieces.empty()) must(open.load(pieces));
}

/// Draws a subset that a partial update may send: an FP8 weight always with its scale.
inline reference::checkpoint draw_subset(const reference::checkpoint& all) {
  reference::checkpoint some;
  for (const auto& [name, value] : all) {
    if (name.ends_with("_scale_inv") || draw_small(0, 1) == 0) continue;
    some[name] = value;
    const auto scale = all.find(name + "_scale_inv");
    if (scale != all.end()) some.insert(*scale);
  }
  if (some.empty())
    for (const auto& [name, value] : all)
      if (name.starts_with(all.begin()->first)) some[name] = value;
  return some;
}

/// A model in words, for messages.
inline std::string in_words(const std::vector<reference::layer>& layers) {
  std::string text;
  for (const reference::layer& layer : layers)
    visit_layout(layer, [&](auto layout) {
      layer_plan plan;
      const status refused = plan_layer(decltype(layout)::specs, layer.name, extents_of(layer), plan);
      text += refused.ok() ? describe(plan) : refused.message() + "\n";
    });
  return text;
}

}  // namespace wreload::test
