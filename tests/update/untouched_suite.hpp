#pragma once
/// Laws 3 and 4: what an update does not send keeps every byte; the same update twice equals once.

#include "../property.hpp"
#include "generators.hpp"

namespace wreload::test {

/// The first byte that differs between two images although the checkpoint tensor it belongs to (if any) is not in
/// `sent`. Gaps and pads belong to none.
template <class Executor>
std::string touched(const engine<Executor>& tested, const std::vector<std::vector<std::byte>>& before,
                    const std::vector<std::vector<std::byte>>& after, const reference::checkpoint& sent) {
  for (std::size_t t = 0; t < before.size(); ++t) {
    const auto& tensor = tested.tensors()[t];
    const std::int64_t element = bytes_of(tensor.plan.type);
    for (std::size_t i = 0; i < before[t].size(); ++i) {
      if (before[t][i] == after[t][i]) continue;
      const std::int64_t row = static_cast<std::int64_t>(i) / tensor.row_stride_bytes;
      const std::int64_t byte = static_cast<std::int64_t>(i) % tensor.row_stride_bytes;
      const std::string where = tensor.plan.name + ": row " + std::to_string(row) + ", byte " + std::to_string(byte);
      if (byte >= tensor.row_bytes) return where + " (a gap) was written";
      const auto& origin = tensor.plan.elements[static_cast<std::size_t>(row * tensor.plan.cols + byte / element)];
      if (origin.source < 0) return where + " (a pad) was written";
      const std::string& owner = tensor.plan.sources[static_cast<std::size_t>(origin.source)];
      if (!sent.contains(owner)) return where + " was written, but " + owner + " was not sent";
    }
  }
  return {};
}

TEST_CASE_TEMPLATE_DEFINE("law 3: a partial update leaves every other byte alone", Executor, untouched_partial) {
  property("pads, gaps, retired scales and other shards; finished or aborted", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 3));
    tested.reload(random_checkpoint(layers, draw_seed(), stored_as::mixed));
    const auto before = tested.image();
    const auto sent = draw_subset(random_checkpoint(layers, draw_seed(), stored_as::mixed));
    std::vector<std::string_view> names;
    for (const auto& entry : sent) names.push_back(entry.first);
    update<Executor> open = tested.start_partial(names);
    send_delivery(tested, open, draw_delivery(sent));
    if (one_in(4))
      must(open.abort());
    else
      must(open.finish());
    const std::string found = touched(tested, before, tested.image(), sent);
    demand(found.empty(), found);
    demand(tested.memory().guards_intact(), "a byte outside an allocation was written");
  });
}

TEST_CASE_TEMPLATE_DEFINE("law 3: pads are zero from seal on, and no update writes them", Executor, untouched_pads) {
  reference::layer padded = linear("lm_head", {whole_shard("lm_head", 9, reference::cut::column)}, 5);
  padded.tp_size = 3;
  padded.shards[0].checkpoint_rows = padded.shards[0].tensor_rows = 7;
  for (int rank = 0; rank < 3; ++rank) {
    padded.tp_rank = rank;
    engine<Executor> tested({padded}, 1);
    const std::int64_t rows = std::min<std::int64_t>(7 - 3 * rank, 3);
    const auto sealed = tested.dense("lm_head.weight");
    for (std::size_t i = 0; i < sealed.size(); ++i)
      CHECK(sealed[i] == (static_cast<std::int64_t>(i) < rows * 10 ? engine<Executor>::poison : std::byte{}));
    for (const stored_as how : {stored_as::fp8, stored_as::bf16, stored_as::fp8}) {
      const auto all = random_checkpoint(tested.layers(), 3, how);
      tested.reload(all);
      tested.demand_cold(all);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("law 3: every byte of a shard beside a sent one stays", Executor, untouched_shards) {
  engine<Executor> tested(small_model(), 2);
  auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  const auto before = tested.image();
  const auto next = random_checkpoint(tested.layers(), 2, stored_as::bf16);
  const reference::checkpoint sent = {{"q.weight", next.at("q.weight")}};
  tested.reload_partial(sent);  // BF16 over FP8: no scale, which keeps its bytes too
  CHECK(touched(tested, before, tested.image(), sent) == "");
  tested.demand_cold(reference::overlay(all, sent));
  const reference::checkpoint back = {{"q.weight", all.at("q.weight")},
                                      {"q.weight_scale_inv", all.at("q.weight_scale_inv")}};
  tested.reload_partial(back);
  CHECK(before == tested.image());
}

TEST_CASE_TEMPLATE_DEFINE("law 3: a partial update that begins an FP8 row must complete it", Executor,
                          untouched_half_row) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  const std::vector<std::string_view> names = {"q.weight", "q.weight_scale_inv"};
  update<Executor> open = tested.start_partial(names);
  must(tested.send(open, all, "q.weight_scale_inv"));
  const auto& whole = all.at("q.weight");
  const auto half = pack("q.weight", whole, {0, 0}, {5, 3}, 0);
  must(open.load("q.weight", tested.place({half.type, {5, 3}, half.bytes}), half.part));
  check_refused(open.finish(), error_code::incomplete, "q.weight");
  const auto rest = pack("q.weight", whole, {0, 3}, {5, 4}, 0);
  must(open.load("q.weight", tested.place({rest.type, {5, 4}, rest.bytes}), rest.part));
  must(open.finish());
  tested.demand_cold(all);
}

TEST_CASE_TEMPLATE_DEFINE("law 4: the same update twice equals once", Executor, once_twice) {
  property("byte for byte, retired tensors too", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 1));
    tested.reload(random_checkpoint(layers, draw_seed(), stored_as::mixed));
    const auto b = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    tested.reload(b);
    const auto once = tested.image();
    update<Executor> open = tested.start();
    send_delivery(tested, open, draw_delivery(b));
    must(open.finish());
    demand(once == tested.image(), "the second time changed a byte");
    tested.demand_cold(b);
  });
}

TEST_CASE_TEMPLATE_DEFINE("law 4: post-load work runs once, and only for rows that came as FP8", Executor, once_work) {
  engine<Executor> tested(small_model());
  const auto fp8 = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  must(tested.send(open, fp8));
  must(open.finish());
  CHECK(open.report().converted_rows == 5 + 4 + 6);
  check_refused(open.finish(), error_code::wrong_state);  // not a second time
  tested.demand_cold(fp8);

  const reference::checkpoint norm = {{"norm.weight", fp8.at("norm.weight")}};
  const std::vector<std::string_view> names = {"norm.weight"};
  update<Executor> second = tested.start_partial(names);
  must(tested.send(second, norm));
  must(second.finish());
  CHECK(second.report().converted_rows == 0);
  tested.demand_cold(fp8);
}

TEST_CASE_TEMPLATE_DEFINE("law 4 and 6: a byte that has arrived is refused, whatever its shape", Executor,
                          once_duplicates) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  update<Executor> open = tested.start();
  const auto load_part = [&](const reference::checkpoint& from, const shape& offset, const shape& size) {
    const parcel cut = pack("o_proj.weight", from.at("o_proj.weight"), offset, size, 0);
    const placed_source at = tested.memory().place(cut.bytes.data(), static_cast<std::int64_t>(cut.bytes.size()));
    return open.load(cut.name, {at.data, cut.type, cut.extents, {}, at.memory}, cut.part);
  };
  must(load_part(a, {1, 2}, {3, 3}));
  const auto before = tested.image();
  check_refused(load_part(b, {1, 2}, {3, 3}), error_code::duplicate, "o_proj.weight");
  check_refused(load_part(b, {3, 4}, {3, 3}), error_code::duplicate);  // one common corner
  check_refused(load_part(b, {0, 0}, {6, 7}), error_code::duplicate);  // around it
  check_refused(load_part(b, {2, 3}, {1, 1}), error_code::duplicate);  // inside it
  check_refused(tested.send(open, b, "o_proj.weight"), error_code::duplicate);
  CHECK(before == tested.image());
  must(load_part(a, {0, 0}, {1, 7}));
  must(load_part(a, {4, 0}, {2, 7}));
  must(load_part(a, {1, 0}, {3, 2}));
  must(load_part(a, {1, 5}, {3, 2}));
  check_refused(load_part(b, {5, 6}, {1, 1}), error_code::duplicate);
  for (const auto& [name, value] : a)
    if (name != "o_proj.weight") must(open.load(name, tested.place(value)));
  must(open.finish());
  tested.demand_cold(a);
}

TEST_CASE_TEMPLATE_DEFINE("retract lets a tensor come again, and nothing else", Executor, once_retract) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2, stored_as::bf16);
  update<Executor> open = tested.start();
  must(tested.send(open, a));
  must(open.retract("q.weight"));
  check_refused(tested.send(open, a, "kv.weight"), error_code::duplicate);
  check_refused(open.finish(), error_code::incomplete, "q.weight");
  must(tested.send(open, b, "q.weight"));  // in another format this time
  check_refused(open.retract("nonsense"), error_code::unknown_name, "nonsense");
  must(open.retract("bias"));
  must(tested.send(open, b, "bias"));
  must(open.retract("qkv.weight"));  // a runtime name: both shards
  check_refused(open.finish(), error_code::incomplete, "q.weight");
  must(tested.send(open, b, "kv.weight"));
  must(tested.send(open, a, "q.weight"));
  must(open.finish());
  auto logical = a;
  logical["bias"] = b.at("bias");
  logical["kv.weight"] = b.at("kv.weight");
  tested.demand_cold(logical);
}

}  // namespace wreload::test
