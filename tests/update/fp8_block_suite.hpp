#pragma once
/// Layers that stay block FP8 at run time: weights and scales land as they are, cut in whole blocks.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <wreload/layouts/fp8_block_linear.hpp>
#include <wreload/layouts/fp8_block_moe.hpp>

#include "../property.hpp"
#include "closed_checks.hpp"
#include "generators.hpp"
#include "layout_engine.hpp"

namespace wreload::test {

using KeptLinear = Fp8BlockLinearOf<2, 3>;
using KeptMoe = Fp8BlockMoeOf<2, 3>;

/// The plain reference: which part of which checkpoint tensors a runtime tensor holds, top to bottom. Scales hold the
/// same part in blocks.
struct kept_part {
  std::string module = {};
  std::int64_t rows = 0;  ///< of the whole tensor
  std::int64_t cols = 0;
  rect needed = {};
};
struct kept_tensor {
  std::string weight = {};  ///< runtime names
  std::string scale = {};
  std::vector<kept_part> parts = {};
};

/// Blocks that hold rows or columns [begin, end).
inline std::int64_t block_end(std::int64_t end, std::int64_t block) { return (end + block - 1) / block; }

inline std::vector<std::byte> kept_weight(const kept_tensor& of, const reference::checkpoint& from) {
  std::vector<std::byte> bytes;
  for (const kept_part& part : of.parts)
    for (std::int64_t r = part.needed.row_begin; r < part.needed.row_end; ++r)
      for (std::int64_t c = part.needed.col_begin; c < part.needed.col_end; ++c)
        bytes.push_back(from.at(part.module + ".weight").bytes[static_cast<std::size_t>(r * part.cols + c)]);
  return bytes;
}
inline std::vector<std::byte> kept_scale(const kept_tensor& of, const reference::checkpoint& from) {
  std::vector<std::byte> bytes;
  for (const kept_part& part : of.parts) {
    const reference::tensor& grid = from.at(part.module + ".weight_scale_inv");
    for (std::int64_t r = part.needed.row_begin / 2; r < block_end(part.needed.row_end, 2); ++r)
      for (std::int64_t c = part.needed.col_begin / 3; c < block_end(part.needed.col_end, 3); ++c) {
        const std::uint32_t code = reference::code_at(grid, r * grid.sizes[1] + c);
        const std::uint32_t value = grid.type == dtype::fp32 ? code : reference::widened(grid.type, code, dtype::fp32);
        const auto* first = reinterpret_cast<const std::byte*>(&value);
        bytes.insert(bytes.end(), first, first + sizeof value);
      }
  }
  return bytes;
}

/// A random checkpoint for these tensors; scales in fp32, bf16 or ue8m0.
inline reference::checkpoint kept_checkpoint(const std::vector<kept_tensor>& all, std::uint64_t seed) {
  noise random(seed);
  reference::checkpoint made;
  constexpr dtype scale_types[] = {dtype::fp32, dtype::bf16, dtype::fp8_ue8m0};
  for (const kept_tensor& each : all)
    for (const kept_part& part : each.parts) {
      made[part.module + ".weight"] = random_tensor(dtype::fp8_e4m3, {part.rows, part.cols}, false, random);
      made[part.module + ".weight_scale_inv"] =
          random_tensor(scale_types[random.below(3)], {block_end(part.rows, 2), block_end(part.cols, 3)}, true, random);
    }
  return made;
}

/// A fused linear layer: every shard but the last in whole blocks, cut in whole blocks.
struct kept_layer {
  bool stacked = false;
  extents sizes = {};
  std::vector<kept_tensor> tensors = {};
};
inline kept_layer draw_kept_linear(const std::string& name) {
  kept_layer made{.tensors = {{name + ".weight", name + ".weight_scale_inv", {}}}};
  const auto how = static_cast<parallel>(draw_small(0, 2));
  made.sizes.tp.size = static_cast<int>(draw_small(1, 3));
  made.sizes.tp.rank = static_cast<int>(draw(0, made.sizes.tp.size - 1));
  made.sizes.split = how;
  const std::int64_t ranks = made.sizes.tp.size;
  const std::int64_t cols = how == parallel::row && ranks > 1 ? 3 * draw_small(1, 4) * ranks : draw_small(1, 14);
  made.sizes.inner = {cols};
  const std::int64_t count = draw_small(1, 3);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool ragged = i + 1 == count && (how != parallel::column || ranks == 1);
    const std::int64_t rows = ragged ? draw_small(1, 9) : 2 * draw_small(1, 4) * (how == parallel::column ? ranks : 1);
    const std::string module = name + "." + std::to_string(i);
    made.sizes.shards.push_back({.module = module, .rows = rows});
    kept_part part{module, rows, cols, {0, rows, 0, cols}};
    if (how == parallel::column) part.needed = {rows / ranks * made.sizes.tp.rank, rows / ranks * (made.sizes.tp.rank + 1), 0, cols};
    if (how == parallel::row) part.needed = {0, rows, cols / ranks * made.sizes.tp.rank, cols / ranks * (made.sizes.tp.rank + 1)};
    made.tensors[0].parts.push_back(part);
  }
  return made;
}
inline kept_layer draw_kept_experts(const std::string& name) {
  kept_layer made{.stacked = true, .tensors = {{name + ".w13_weight", name + ".w13_weight_scale_inv", {}}, {name + ".w2_weight", name + ".w2_weight_scale_inv", {}}}};
  const std::int64_t ranks = draw_small(1, 2), rank = draw(0, ranks - 1);
  const std::int64_t width = ranks == 1 ? 2 * draw_small(1, 5) : 6 * draw_small(1, 2) * ranks, hidden = draw_small(1, 11);
  made.sizes = {.shards = {{.module = "gate_proj", .rows = width, .cols = hidden}, {.module = "up_proj", .rows = width, .cols = hidden},
                           {.module = "down_proj", .rows = hidden, .cols = width, .split = parallel::row}},
                .split = parallel::column, .tp = {static_cast<int>(ranks), static_cast<int>(rank)}, .experts = expert_slots{draw_small(1, 3), {}}};
  for (std::int64_t slots = draw_small(1, 3); slots > 0; --slots) made.sizes.experts->local.push_back(draw(0, made.sizes.experts->total - 1));
  const std::int64_t begin = width / ranks * rank, end = begin + width / ranks;
  for (const std::int64_t expert : made.sizes.experts->local) {
    const std::string module = name + "." + std::to_string(expert) + ".";
    for (const char* half : {"gate_proj", "up_proj"}) made.tensors[0].parts.push_back({module + half, width, hidden, {begin, end, 0, hidden}});
    made.tensors[1].parts.push_back({module + "down_proj", hidden, width, {0, hidden, begin, end}});
  }
  return made;
}

template <class Executor>
void demand_kept(layout_engine<Executor>& tested, const std::vector<kept_tensor>& all, const reference::checkpoint& from) {
  for (const kept_tensor& each : all) {
    demand(tested.bytes(each.weight) == kept_weight(each, from), each.weight + " differs from the reference");
    demand(tested.bytes(each.scale) == kept_scale(each, from), each.scale + " differs from the reference");
  }
  demand(tested.memory().guards_intact(), "a byte outside an allocation was written");
}

TEST_CASE_TEMPLATE_DEFINE("block FP8, laws 1 and 3: linears and experts, any order and cut, whole and in part", Executor, fp8_block_cold_equal) {
  property("A -> B -> A, then modules alone", [] {
    layout_engine<Executor> tested;
    std::vector<kept_tensor> all;
    for (std::int64_t i = draw_small(0, 1); i >= 0; --i) {
      const std::string name = "layers." + std::to_string(i);
      const kept_layer drawn = one_in(3) ? draw_kept_experts(name) : draw_kept_linear(name);
      status refused;
      RC_LOG() << (drawn.stacked ? describe<KeptMoe>(name, drawn.sizes, &refused) : describe<KeptLinear>(name, drawn.sizes, &refused));
      drawn.stacked ? tested.template add<KeptMoe>(name, drawn.sizes) : tested.template add<KeptLinear>(name, drawn.sizes);
      all.insert(all.end(), drawn.tensors.begin(), drawn.tensors.end());
    }
    must(tested.model().seal());
    const auto a = kept_checkpoint(all, draw_seed()), b = kept_checkpoint(all, draw_seed());
    for (const auto* each : {&a, &b, &a}) {
      update<Executor> open = tested.start();
      send_delivery(tested, open, draw_delivery(*each));
      must(open.finish());
      demand(open.report().converted_rows == 0, "nothing is converted");
      demand_kept(tested, all, *each);
    }
    reference::checkpoint logical = a, some;
    for (const auto& [name, value] : b) {  // a weight with its scale
      if (name.ends_with("_scale_inv") || one_in(2)) continue;
      some[name] = value;
      some[name + "_scale_inv"] = b.at(name + "_scale_inv");
    }
    if (some.empty()) return;
    std::vector<std::string_view> names;
    for (const auto& entry : some) names.push_back(entry.first);
    update<Executor> open = tested.start({.scope = update_scope::partial(names)});
    send_delivery(tested, open, draw_delivery(some));
    must(open.finish());
    for (const auto& [name, value] : some) logical[name] = value;
    demand_kept(tested, all, logical);
  });
}

TEST_CASE_TEMPLATE_DEFINE("block FP8, law 6: a weight without its scale, and the other way round, is named", Executor, fp8_block_pairs) {
  layout_engine<Executor> tested;
  tested.template add<KeptLinear>("qkv", {.shards = {{.module = "q", .rows = 4}, {.module = "kv", .rows = 3}}, .inner = {5}});
  must(tested.model().seal());
  const std::vector<kept_tensor> all = {{"qkv.weight", "qkv.weight_scale_inv", {{"q", 4, 5, {0, 4, 0, 5}}, {"kv", 3, 5, {0, 3, 0, 5}}}}};
  const auto a = kept_checkpoint(all, 1), b = kept_checkpoint(all, 2);
  const auto send = [&](auto& open, const reference::checkpoint& from, const std::string& name) { must(open.load(name, tested.place(from.at(name)))); };
  {
    update<Executor> open = tested.start();
    for (const auto& entry : a)
      if (entry.first != "kv.weight_scale_inv") send(open, a, entry.first);
    check_incomplete(tested, open, "kv.weight_scale_inv");
    send(open, a, "kv.weight_scale_inv");
    must(open.finish());
  }
  demand_kept(tested, all, a);
  for (const std::string first : {"q.weight", "q.weight_scale_inv"}) {
    const std::string other = first == "q.weight" ? "q.weight_scale_inv" : "q.weight";
    for (const bool declared : {true, false}) {
      const std::vector<std::string_view> names = declared ? std::vector<std::string_view>{"q.weight", "q.weight_scale_inv"} : std::vector<std::string_view>{first};
      update<Executor> open = tested.start({.scope = update_scope::partial(names)});
      send(open, b, first);
      check_incomplete(tested, open, other);
      CHECK(open.report().missing.size() == 1);
      if (!declared) {
        check_refused(open.load(other, tested.place(b.at(other))), error_code::out_of_scope, other);
        continue;  // aborted: undefined
      }
      send(open, b, other);
      must(open.finish());
      auto logical = a;
      logical[first] = b.at(first), logical[other] = b.at(other);
      demand_kept(tested, all, logical);
    }
    update<Executor> repair = tested.start();
    for (const auto& entry : a) send(repair, a, entry.first);
    must(repair.finish());
  }
  // A part of a weight asks for all of it: its scale was made for the whole.
  const std::vector<std::string_view> names = {"kv.weight", "kv.weight_scale_inv"};
  update<Executor> open = tested.start({.scope = update_scope::partial(names)});
  send(open, b, "kv.weight_scale_inv");
  const parcel rows = pack("kv.weight", b.at("kv.weight"), {0, 0}, {2, 5}, 0);
  must(open.load("kv.weight", tested.place({rows.type, {2, 5}, rows.bytes}), rows.part));
  check_incomplete(tested, open, "kv.weight (rows 2..3");
}

TEST_CASE_TEMPLATE_DEFINE("block FP8, law 5: BF16 and other grids are refused and write nothing", Executor, fp8_block_refuses) {
  layout_engine<Executor> tested;
  tested.template add<KeptLinear>("o_proj", extents::matrix("o_proj", 6, 9));
  must(tested.model().seal());
  const auto before = tested.image();
  update<Executor> open = tested.start();
  noise random(1);
  const auto load = [&](const char* name, dtype type, const reference::dims& sizes) { return open.load(name, tested.place(random_tensor(type, sizes, false, random))); };
  check_refused(load("o_proj.weight", dtype::bf16, {6, 9}), error_code::wrong_dtype, "o_proj.weight");
  check_refused(load("o_proj.weight", dtype::u8, {6, 9}), error_code::wrong_dtype, "o_proj.weight");
  check_refused(load("o_proj.weight", dtype::fp8_e5m2, {6, 9}), error_code::wrong_dtype, "o_proj.weight");
  check_refused(load("o_proj.weight_scale_inv", dtype::fp32, {6, 3}), error_code::wrong_shape, "o_proj.weight_scale_inv");
  check_refused(load("o_proj.weight_scale_inv", dtype::fp32, {1, 1}), error_code::wrong_shape, "o_proj.weight_scale_inv");
  check_refused(load("o_proj.weight_scale_inv", dtype::fp16, {3, 3}), error_code::wrong_dtype, "o_proj.weight_scale_inv");
  check_refused(load("o_proj.weight_scale", dtype::fp8_e4m3, {3, 3}), error_code::wrong_dtype, "o_proj.weight_scale");
  CHECK(before == tested.image());
  must(load("o_proj.weight_scale", dtype::bf16, {3, 3}));  // Quark's spelling
  must(load("o_proj.weight", dtype::fp8_e4m3, {6, 9}));
  must(open.finish());
}

}  // namespace wreload::test
