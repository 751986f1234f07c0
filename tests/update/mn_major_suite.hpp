#pragma once
/// Scales in MN-major order: landed, padded, compared and digested as the transpose they are.

#include "fp8_block_suite.hpp"
#include "runtime_parts_suite.hpp"

namespace wreload::test {

using MnMajorLinear = Fp8BlockLinearMnMajorOf<2, 3>;
using MnMajorMoe = Fp8BlockMoeMnMajorOf<2, 3>;

/// The transpose of each slot's fp32 matrix, rows padded to 4.
inline std::vector<std::byte> transposed(const std::vector<std::byte>& rows, std::int64_t slots, std::int64_t cols) {
  const std::int64_t height = static_cast<std::int64_t>(rows.size()) / 4 / slots / cols, pitch = nv::round_up(height, 4);
  std::vector<std::byte> made(static_cast<std::size_t>(slots * cols * pitch * 4));
  for (std::int64_t s = 0; s < slots; ++s)
    for (std::int64_t r = 0; r < height; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        std::memcpy(&made[static_cast<std::size_t>((s * cols + c) * pitch + r) * 4], &rows[static_cast<std::size_t>((s * height + r) * cols + c) * 4], 4);
  return made;
}

inline nv::image mn_major_image(const kept_layer& layer, const reference::checkpoint& from) {
  nv::image made;
  const auto slots = static_cast<std::int64_t>(layer.stacked ? layer.sizes.experts->local.size() : 1);
  for (const kept_tensor& each : layer.tensors) {
    const rect& first = each.parts[0].needed;
    made[each.weight] = kept_weight(each, from);
    made[each.scale + "_mn_major"] = transposed(kept_scale(each, from), slots, block_end(first.col_end, 3) - first.col_begin / 3);
  }
  return made;
}

template <class Executor>
void demand_image(layout_engine<Executor>& tested, const nv::image& expected) {
  for (const auto& [name, bytes] : expected) demand(tested.bytes(name) == bytes, name + " differs from the reference");
  demand(tested.image().size() == expected.size(), "another number of tensors than the reference");
  demand(tested.memory().guards_intact(), "a byte outside an allocation was written");
}

template <class Executor>
void add_mn_major(layout_engine<Executor>& to, const std::string& name, const kept_layer& layer) {
  status refused;
  RC_LOG() << (layer.stacked ? describe<MnMajorMoe>(name, layer.sizes, &refused) : describe<MnMajorLinear>(name, layer.sizes, &refused));
  layer.stacked ? to.template add<MnMajorMoe>(name, layer.sizes) : to.template add<MnMajorLinear>(name, layer.sizes);
}

TEST_CASE_TEMPLATE_DEFINE("MN-major: the worked bytes of a 3 x 2 grid, at a pitch of 4, and of 4 x 2", Executor, mn_major_worked) {
  layout_engine<Executor> tested;
  tested.template add<MnMajorLinear>("a", extents::matrix("a", 5, 4));
  tested.template add<MnMajorLinear>("b", extents::matrix("b", 8, 6));
  must(tested.model().seal());
  CHECK(tested.bytes("a.weight_scale_inv_mn_major")[4 * 3] == std::byte{0});  // a pad, written at seal
  noise random(1);
  update<Executor> open = tested.start();
  must(open.load("a.weight", tested.place(random_tensor(dtype::fp8_e4m3, {5, 4}, false, random))));
  must(open.load("b.weight", tested.place(random_tensor(dtype::fp8_e4m3, {8, 6}, false, random))));
  must(open.load("a.weight_scale_inv", tested.place(tensor_of<float>(dtype::fp32, {3, 2}, {0, 1, 10, 11, 20, 21}))));
  must(open.load("b.weight_scale_inv", tested.place(tensor_of<std::uint16_t>(dtype::bf16, {4, 2}, {0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0x4100}))));
  must(open.finish());
  CHECK(open.report().bound == 1);
  CHECK(open.report().aliased == 1);
  CHECK(tested.bytes("a.weight_scale_inv_mn_major") == tensor_of<float>(dtype::fp32, {2, 4}, {0, 10, 20, 0, 1, 11, 21, 0}).bytes);
  CHECK(tested.bytes("b.weight_scale_inv_mn_major") == tensor_of<float>(dtype::fp32, {2, 4}, {1, 3, 5, 7, 2, 4, 6, 8}).bytes);
}

TEST_CASE_TEMPLATE_DEFINE("MN-major, laws 1 and 3: linears and experts, any order and cut, whole and in part", Executor, mn_major_cold_equal) {
  property("A -> B -> A, then modules alone", [] {
    const kept_layer layer = one_in(2) ? draw_kept_experts("layer") : draw_kept_linear("layer");
    layout_engine<Executor> tested;
    add_mn_major(tested, "layer", layer);
    must(tested.model().seal());
    const auto a = kept_checkpoint(layer.tensors, draw_seed()), b = kept_checkpoint(layer.tensors, draw_seed());
    for (const auto* each : {&a, &b, &a}) {
      update<Executor> open = tested.start();
      send_delivery(tested, open, draw_delivery(*each));
      must(open.finish());
      demand_image(tested, mn_major_image(layer, *each));
    }
    reference::checkpoint some;
    for (const auto& [name, value] : b)  // a weight with its scale
      if (!name.ends_with("_scale_inv") && one_in(2)) some[name] = value, some[name + "_scale_inv"] = b.at(name + "_scale_inv");
    if (some.empty()) return;
    std::vector<std::string_view> names;
    for (const auto& entry : some) names.push_back(entry.first);
    update<Executor> open = tested.start({.scope = update_scope::partial(names)});
    send_delivery(tested, open, draw_delivery(some));
    must(open.finish());
    demand_image(tested, mn_major_image(layer, over(a, some)));
  });
}

TEST_CASE_TEMPLATE_DEFINE("MN-major: parts in runtime form, some from the checkpoint, equal a cold start", Executor, mn_major_runtime) {
  property("any parts, any order", [] {
    kept_layer layer = one_in(2) ? draw_kept_experts("layer") : draw_kept_linear("layer");
    if (layer.stacked) {  // no replicas: each element has one place
      std::vector<std::int64_t>& local = layer.sizes.experts->local;
      std::vector<std::size_t> kept;
      for (std::size_t i = 0; i < local.size(); ++i)
        if (std::find(local.begin(), local.begin() + static_cast<std::ptrdiff_t>(i), local[i]) == local.begin() + static_cast<std::ptrdiff_t>(i)) kept.push_back(i);
      const kept_layer all = layer;
      local.clear();
      for (kept_tensor& each : layer.tensors) each.parts.clear();
      for (const std::size_t i : kept) {
        local.push_back(all.sizes.experts->local[i]);
        for (const std::size_t half : {0, 1}) layer.tensors[0].parts.push_back(all.tensors[0].parts[2 * i + half]);
        layer.tensors[1].parts.push_back(all.tensors[1].parts[i]);
      }
    }
    layout_engine<Executor> tested;
    add_mn_major(tested, "layer", layer);
    must(tested.model().seal());
    for (int round = 0; round < 2; ++round) {
      auto all = kept_checkpoint(layer.tensors, draw_seed());
      noise random(draw_seed());
      for (auto& [name, value] : all)
        if (name.ends_with("_scale_inv")) value = random_tensor(dtype::fp32, value.sizes, true, random);
      send_in_both_forms(tested, all, [&](const reference::checkpoint& from) { return mn_major_image(layer, from); });
      demand_image(tested, mn_major_image(layer, all));
    }
  });
}

/// FP32 in an order of rows, transposed.
template <class... Steps>
struct Transposed : ParamLayout<Param<tags::weight, StorageView<fp32>, Accepts<bf16>, Map<Steps..., MnMajor>>> {};
template <class... Steps>
struct TransposedTwin : ParamLayout<Param<tags::weight, StorageView<fp32>, Map<Steps..., MnMajor>, SameAs<tags::alternative>>> {};

/// Calls `add(order, halves, multiple)` layouts by number: the order of rows before the transpose.
template <template <class...> class Layout, class Executor>
void add_transposed(layout_engine<Executor>& to, std::int64_t order, const extents& sizes) {
  if (order == 0) to.template add<Layout<PadToMultiple<6, 5>>>("l", sizes);
  if (order == 1) to.template add<Layout<SwapHalves>>("l", sizes);
  if (order == 2) to.template add<Layout<PadToMultiple<16, 1>, GatedInterleave, ShuffleRows<32>>>("l", sizes);
  if (order == 3) to.template add<Layout<PadToMultiple<32, 3>, ShuffleRows<32>>>("l", sizes);
}
inline nv::image transposed_image(std::int64_t order, std::int64_t half, std::int64_t cols, const reference::checkpoint& from) {
  const bool halves = order == 1 || order == 2;
  const std::int64_t padded = order == 2 ? nv::round_up(half, 16) : half;
  const std::int64_t width = order == 0 ? nv::round_up(cols, 5) : order == 3 ? nv::round_up(cols, 3) : cols;
  const std::int64_t rows = order == 0 ? nv::round_up(2 * half, 6) : order == 3 ? nv::round_up(2 * half, 32) : 2 * padded;
  nv::matrix plain(rows, 4 * width);
  for (const std::int64_t h : {0, 1})
    for (std::int64_t r = 0; r < half; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const std::int64_t to = halves ? (order == 1 ? 1 - h : h) * padded + r : h * half + r;
        const reference::tensor& value = from.at(h == 0 ? "w1.weight" : "w3.weight");
        const std::uint32_t code = reference::code_at(value, r * cols + c);
        const std::uint32_t wide = value.type == dtype::fp32 ? code : reference::widened(value.type, code, dtype::fp32);
        std::memcpy(&plain.at(to, 4 * c), &wide, 4);
      }
  if (order == 2) plain = nv::gated(plain);
  if (order == 3) plain = nv::shuffled(plain);
  return {{"l.weight", transposed(plain.bytes, 1, width)}};
}

TEST_CASE_TEMPLATE_DEFINE("MN-major behind every other step: widened while landing, whole, cut, and in both forms", Executor, mn_major_steps) {
  property("any rows and columns, any cut", [] {
    const std::int64_t half = draw_small(1, 70), cols = draw_small(1, 9), order = draw_small(0, 3);
    const extents sizes{.shards = {{.module = "w1", .rows = half}, {.module = "w3", .rows = half}}, .inner = {cols}};
    layout_engine<Executor> tested;
    add_transposed<Transposed>(tested, order, sizes);
    must(tested.model().seal());
    noise random(draw_seed());
    for (const bool both_forms : {false, true, false}) {
      reference::checkpoint all;
      for (const char* name : {"w1.weight", "w3.weight"})
        all[name] = random_tensor(!both_forms && one_in(2) ? dtype::bf16 : dtype::fp32, {half, cols}, false, random);
      const image_of cold = [&](const reference::checkpoint& from) { return transposed_image(order, half, cols, from); };
      if (both_forms) {
        send_in_both_forms(tested, all, cold);
      } else {
        update<Executor> open = tested.start();
        send_delivery(tested, open, draw_delivery(all));
        must(open.finish());
      }
      demand_image(tested, cold(all));
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("MN-major: a second name is compared where it would land", Executor, mn_major_twin) {
  property("equal pieces in any cut pass, one other byte is named", [] {
    const std::int64_t half = draw_small(1, 40), cols = draw_small(1, 9), order = one_in(2) ? 0 : 3;
    layout_engine<Executor> tested;
    add_transposed<TransposedTwin>(tested, order, extents::matrix("l", 2 * half, cols));
    must(tested.model().seal());
    noise random(draw_seed());
    const reference::tensor value = random_tensor(dtype::fp32, {2 * half, cols}, false, random);
    reference::tensor other = value;
    const bool differs = one_in(2);
    if (differs) other.bytes[static_cast<std::size_t>(draw(0, 8 * half * cols - 1))] ^= std::byte{1};
    update<Executor> open = tested.start();
    send_delivery(tested, open, draw_delivery({{"l.weight", value}, {"l.alternative", other}}));
    const status refused = open.finish();
    demand(refused.code == (differs ? error_code::conflict : error_code::ok), refused.message());
    if (differs) return;
    reference::checkpoint halves;
    const auto middle = value.bytes.begin() + static_cast<std::ptrdiff_t>(4 * half * cols);
    halves["w1.weight"] = {dtype::fp32, {half, cols}, {value.bytes.begin(), middle}};
    halves["w3.weight"] = {dtype::fp32, {half, cols}, {middle, value.bytes.end()}};
    demand_image(tested, transposed_image(order, half, cols, halves));
  });
}

TEST_CASE_TEMPLATE_DEFINE("MN-major: audit, snapshot, digests, and transports that write storage themselves", Executor, mn_major_audit) {
  kept_layer layer{.sizes = extents::matrix("l", 5, 7), .tensors = {{"l.weight", "l.weight_scale_inv", {{"l", 5, 7, {0, 5, 0, 7}}}}}};
  const auto a = kept_checkpoint(layer.tensors, 1), b = kept_checkpoint(layer.tensors, 2);
  layout_engine<Executor> tested, fresh, plain;
  tested.template add<MnMajorLinear>("l", layer.sizes);
  fresh.template add<MnMajorLinear>("l", layer.sizes);
  plain.template add<KeptLinear>("l", layer.sizes);
  for (auto* each : {&tested, &fresh, &plain}) must(each->model().seal());
  const auto reload = [](layout_engine<Executor>& to, const reference::checkpoint& all) {
    update<Executor> open = to.start();
    for (const auto& [name, value] : all) must(open.load(name, to.place(value)));
    must(open.finish());
  };
  reload(tested, a), reload(fresh, a), reload(plain, a);
  audit_result found;
  model_snapshot before;
  must(tested.model().audit(fresh.model(), {}, &found));
  CHECK(found.clean());
  must(tested.model().snapshot(&before));
  REQUIRE(before.tensors.size() == 2);
  CHECK(before.tensors[1].bytes == mn_major_image(layer, a).at("l.weight_scale_inv_mn_major"));
  const auto sum_of = [](layout_engine<Executor>& of) {
    digest_list list;
    must(of.model().digests(&list));
    std::map<std::string, std::uint64_t> sums;
    for (const tile_digest& tile : list) sums[tile.source] += tile.sum;
    return sums;
  };
  CHECK(sum_of(tested) == sum_of(plain));  // of checkpoint elements, wherever they lie
  reload(tested, b);
  CHECK(sum_of(tested) != sum_of(plain));
  reload(tested, a);
  must(tested.model().audit(before, {}, &found));
  CHECK(found.clean());
  const std::byte other{0x3B};
  tested.memory().write(tested.data("l.weight_scale_inv_mn_major") + (2 * 4 + 1) * 4, &other, 1);  // block row 1, column 2
  must(tested.model().audit(before, {}, &found));
  REQUIRE(found.mismatched.size() == 1);
  CHECK(found.mismatched[0].row == 2);
  CHECK(found.mismatched[0].col == 1);

  update<Executor> open = tested.start();
  direct_landing where;
  check_refused(open.landing("l.weight_scale_inv", {}, dtype::fp32, &where), error_code::unsupported, "l.weight_scale_inv");
  check_refused(open.landing("l.weight_scale_inv", {{0, 0}, {1, 3}}, dtype::fp32, &where), error_code::unsupported, "l.weight_scale_inv");
  const std::string_view mapped[] = {"l.weight_scale_inv"}, runtime[] = {"l.weight_scale_inv_mn_major"};
  check_refused(open.adopt(mapped, load_form::checkpoint), error_code::unsupported, "l.weight_scale_inv");
  const auto scales = mn_major_image(layer, b).at("l.weight_scale_inv_mn_major");
  tested.memory().write(tested.data("l.weight_scale_inv_mn_major"), scales.data(), static_cast<std::int64_t>(scales.size()));
  must(open.adopt(runtime, load_form::runtime));
  must(open.load("l.weight", tested.place(b.at("l.weight"))));
  must(open.finish());
  demand_image(tested, mn_major_image(layer, b));
}

}  // namespace wreload::test
