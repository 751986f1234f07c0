#pragma once
/// Digests as a by-product of landing: those of the sender, whatever the cut, the order and the layout; and what they
/// refuse.

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../property.hpp"
#include "../reference/digest.hpp"
#include "mn_major_suite.hpp"
#include "nvfp4_engine.hpp"
#include "swap_suite.hpp"

namespace wreload::test {

/// What the definition says of a part of a tensor (two dims or fewer count as its matrix form).
inline std::uint64_t plain_digest(const reference::tensor& of, const rect& part) {
  const shape sizes = shape_of(of.sizes);
  const std::int64_t width = sizes.cols(), element = bytes_of(of.type);
  std::uint64_t sum = 0;
  for (std::int64_t r = part.row_begin; r < part.row_end; ++r)
    for (std::int64_t byte = part.col_begin * element; byte < part.col_end * element; ++byte)
      sum += reference::digest_share(r, byte, static_cast<int>(element),
                                     static_cast<std::uint8_t>(of.bytes[static_cast<std::size_t>(r * width * element + byte)]));
  return sum;
}

/// The sender's list.
inline digest_list told_of(const reference::checkpoint& all) {
  digest_list told;
  for (const auto& [name, value] : all)
    append_digests(name, {.data = value.bytes.data(), .type = value.type, .extents = shape_of(value.sizes)}, told);
  return told;
}

/// Whether each tile that landings counted is what was sent, and a tile of what the model holds where that has the same
/// dtype. Returns the elements counted per source.
template <class Engine, class Update>
std::map<std::string, std::int64_t> check_landed(Engine& tested, const Update& open, const reference::checkpoint& sent) {
  digest_list landed;
  must(open.landed_digests(&landed));
  std::map<std::string, std::int64_t> elements;
  for (const tile_digest& tile : landed) {
    demand(sent.contains(tile.source), tile.source + " was not sent");
    demand(tile.sum == plain_digest(sent.at(tile.source), tile.part), tile.source + " " + to_string(tile.part) + ": another digest");
    elements[tile.source] += tile.part.elements();
  }
  if (open.is_open()) return elements;
  digest_list live;
  must(tested.model().digests(&live));
  using place = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;
  const auto place_of = [](const tile_digest& tile) { return place{tile.param, tile.source, tile.part.row_begin, tile.part.col_begin}; };
  std::map<place, std::uint64_t> sums;
  for (const tile_digest& tile : live) sums[place_of(tile)] = tile.sum;
  for (const tile_digest& tile : landed)
    for (const auto& each : tested.tensors())
      if (each.plan.name == tile.param && each.plan.type == sent.at(tile.source).type && sums.contains(place_of(tile)))
        demand(sums.at(place_of(tile)) == tile.sum, tile.param + ": the live tensor has another digest");
  return elements;
}

/// Small layers, and tensors of several tiles.
inline std::vector<reference::layer> tiled_model() {
  return {linear("fp8", 300, 9), plain("tall", {600, 5}), plain("wide", {3, 9000}), plain("both", {258, 4100}, dtype::u8),
          plain("vector", {777}), plain("wider", {2, 4100}, dtype::fp32, {dtype::bf16}), plain("one", {}, dtype::i64)};
}

TEST_CASE_TEMPLATE_DEFINE("digests of landings: the sender's and the live tensors', over any shards, cuts and orders", Executor,
                          landed_digests_cuts) {
  property("random layers in random pieces, direct and swap, two lanes", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    arena_engine<Executor> tested(layers, draw_small(0, 2));
    for (int round = 0; round < 2; ++round) {
      const auto all = random_checkpoint(layers, draw_seed(), stored_as::mixed);
      const digest_list told = told_of(all);
      const std::int64_t memory = tested.model().executor().allocated_bytes();
      start_options options{.mode = one_in(2) ? update_mode::swap : update_mode::direct, .digests = told, .digest_landed = true};
      if (one_in(3)) options.digests = {};
      update<Executor> open = start_in(tested, options);
      std::vector<parcel> delivery = draw_delivery(all), other;
      while (other.size() < delivery.size() / 2) {
        other.push_back(delivery.back());
        delivery.pop_back();
      }
      auto lane = open.lane(tested.memory().stream(1));
      send_delivery(tested, open, delivery);
      send_delivery(tested, lane, other);
      must(open.finish());
      const auto elements = check_landed(tested, open, all);
      std::map<std::string, std::int64_t> needed;
      for (const auto& each : tested.tensors())
        for (const reference::origin& from : each.plan.elements)
          if (from.source >= 0 && all.contains(each.plan.sources[static_cast<std::size_t>(from.source)]))
            ++needed[each.plan.sources[static_cast<std::size_t>(from.source)]];
      demand(elements == needed, "not each element that this rank needs was counted once");
      const report& done = open.report();
      demand(done.digests_checked + done.digests_unchecked == static_cast<std::int64_t>(options.digests.size()), "not each is counted");
      demand(done.fused_rows == 0, "rows were converted on their way");
      demand(done.peak_extra_device_bytes >= (elements.empty() ? 0 : 8), "the sums were not counted");
      demand(tested.model().executor().allocated_bytes() == memory, "memory was not given back");
      tested.demand_cold(all);
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("digests of landings: tensors of several tiles, in pieces across the tiles", Executor, landed_digests_tiles) {
  arena_engine<Executor> tested(tiled_model());
  for (const update_mode mode : {update_mode::direct, update_mode::swap}) {
    const auto all = random_checkpoint(tested.layers(), mode == update_mode::swap ? 1 : 2, stored_as::mixed);
    const digest_list told = told_of(all);
    update<Executor> open = start_in(tested, {.mode = mode, .digests = told});
    for (const auto& [name, value] : all) {
      const tensor_ref whole = tested.place(value);
      if (whole.extents.rank() < 2) {
        must(open.load(name, whole));
        continue;
      }
      // Rows [0, 1), then the others, each cut at a column that is no multiple of anything.
      const std::int64_t rows = whole.extents[0], cols = whole.extents[1], cut = cols * 2 / 3, element = bytes_of(whole.type);
      for (const auto& [row, row_end] : {std::pair{rows > 1 ? 1 : 0, static_cast<int>(rows)}, std::pair{0, rows > 1 ? 1 : 0}})
        for (const auto& [col, col_end] : {std::pair{cut, cols}, std::pair{std::int64_t{0}, cut}}) {
          tensor_ref part = whole;
          part.data = static_cast<const std::byte*>(whole.data) + (row * cols + col) * element;
          part.extents = {row_end - row, col_end - col};
          part.strides = {cols, 1};
          if (part.extents.elements() > 0) must(open.load(name, part, {{row, col}, part.extents}));
        }
    }
    must(open.finish());
    CHECK(open.report().digests_checked == static_cast<std::int64_t>(told.size()));
    CHECK(open.report().digests_unchecked == 0);
    CHECK(check_landed(tested, open, all).size() == all.size());
    CHECK(tested.difference(all) == "");
  }
}

TEST_CASE_TEMPLATE_DEFINE("digests of landings: a rank's part; the parts of two ranks add up to the sender's", Executor, landed_digests_ranks) {
  using place = std::tuple<std::string, std::int64_t, std::int64_t>;
  std::map<place, std::uint64_t> sums;
  const auto add = [&sums](const digest_list& list, std::uint64_t sign) {
    for (const tile_digest& tile : list) sums[{tile.source, tile.part.row_begin / 256, tile.part.col_begin / 4096}] += sign * tile.sum;
  };
  for (int rank = 0; rank < 2; ++rank) {
    reference::layer rows = plain("rows", {1200, 5}), fp8 = linear("fp8", {whole_shard("fp8", 9, reference::cut::row)}, 9000);
    rows.shards[0].split = reference::cut::column;
    for (reference::layer* each : {&rows, &fp8}) each->tp_size = 2, each->tp_rank = rank;
    engine<Executor> tested({rows, fp8});
    const auto all = random_checkpoint(tested.layers(), 4);
    const digest_list told = told_of(all);
    update<Executor> open = start_in(tested, {.mode = update_mode::direct, .digests = told});
    must(tested.send(open, all));
    must(open.finish());
    // Whole here: two of the 5 tiles down of `rows`, one of the 3 across of the weight, none of the scales'.
    CHECK(open.report().digests_checked == 3);
    CHECK(open.report().digests_checked + open.report().digests_unchecked == static_cast<std::int64_t>(told.size()));
    CHECK(check_landed(tested, open, all).size() == 3);
    if (rank == 0) add(told, ~std::uint64_t{0});
    digest_list landed;
    must(open.landed_digests(&landed));
    add(landed, 1);
    auto sent = all;
    const std::size_t at = rank == 0 ? 0 : sent.at("rows").bytes.size() - 1;  // in a tile that is whole here
    sent.at("rows").bytes[at] ^= std::byte{2};
    update<Executor> again = start_in(tested, {.mode = update_mode::direct, .digests = told});
    must(tested.send(again, sent));
    check_refused(again.finish(), error_code::corrupt, "rows");
  }
  for (const auto& [where, sum] : sums) CHECK_MESSAGE(sum == 0, std::get<0>(where));
}

TEST_CASE_TEMPLATE_DEFINE("digests of landings: a corrupt byte is refused by name; retracted and sent again, it succeeds", Executor,
                          landed_digests_corrupt) {
  arena_engine<Executor> tested(tiled_model());
  const auto all = random_checkpoint(tested.layers(), 3, stored_as::mixed);
  digest_list told = told_of(all);
  told.push_back({{}, "someone.else", {0, 1, 0, 1}, 7});
  told.push_back({{}, "tall", {0, 600, 0, 5}, 7});   // no part of a tile
  for (const update_mode mode : {update_mode::direct, update_mode::swap})
    for (const auto& [name, value] : all) {
      CAPTURE(name);
      auto sent = all;
      sent.at(name).bytes.back() ^= std::byte{1};
      sent.at(name).bytes[sent.at(name).bytes.size() / 2] ^= std::byte{0x80};
      const std::int64_t version = tested.model().version();
      update<Executor> open = start_in(tested, {.mode = mode, .digests = told});
      must(tested.send(open, sent));
      check_refused(open.prepare(), error_code::corrupt, name);
      check_refused(open.finish(), error_code::corrupt, name);
      CHECK(open.is_open());
      CHECK(tested.model().version() == version);
      must(open.retract(name));
      check_refused(open.finish(), error_code::incomplete, name);
      must(tested.send(open, sent, name));
      check_refused(open.finish(), error_code::corrupt, name);
      must(open.retract(name));
      must(tested.send(open, all, name));
      must(open.finish());
      CHECK(open.report().digests_checked == static_cast<std::int64_t>(told.size()) - 2);
      CHECK(open.report().digests_unchecked == 2);
      CHECK(tested.difference(all) == "");
      tested.memory().drop_sources();
    }
}

TEST_CASE_TEMPLATE_DEFINE("digests of landings: what is not counted is not called equal", Executor, landed_digests_uncounted) {
  arena_engine<Executor> tested({plain("a", {7}), plain("b", {7}), plain("c", {2, 3})});
  const auto all = random_checkpoint(tested.layers(), 1);
  digest_list told = told_of(all);
  update<Executor> open = start_in(tested, {.mode = update_mode::direct, .digests = told});
  digest_list landed;
  check_refused(open.landed_digests(&landed), error_code::wrong_state, "prepared");
  must(tested.send(open, all, "a"));
  direct_landing where;
  must(open.landing("b", {}, dtype::bf16, &where));
  tested.memory().write(where.data, all.at("a").bytes.data(), 14);  // not what was told
  const std::string_view names[] = {"b"};
  must(open.adopt(names, load_form::checkpoint));
  must(tested.send(open, all, "c"));
  must(open.finish());
  CHECK(open.report().digests_checked == 2);
  CHECK(open.report().digests_unchecked == 1);
  must(open.landed_digests(&landed));
  CHECK(landed.size() == 2);

  update<Executor> silent = start_in(tested, {.mode = update_mode::direct});
  must(tested.send(silent, all));
  must(silent.finish());
  check_refused(silent.landed_digests(&landed), error_code::wrong_state, "digests");
  for (const update_mode mode : {update_mode::staged, update_mode::layerwise}) {
    start_options options = aside(mode);
    options.digest_landed = true;
    status refused;
    CHECK(!tested.model().start(options, &refused).is_open());
    check_refused(refused, error_code::bad_argument, "digest_landed");
  }
}

TEST_CASE_TEMPLATE_DEFINE("digests of landings: names that share bytes", Executor, landed_digests_twins) {
  engine<Executor> tested({plain("a", {7})}, 0, [](model<Executor>& of) { of.same_as("a", "b"); });
  auto all = random_checkpoint(tested.layers(), 1);
  all["b"] = all.at("a");
  const digest_list told = told_of(all);
  update<Executor> open = start_in(tested, {.mode = update_mode::direct, .digests = told});
  must(tested.send(open, all));
  must(open.finish());
  CHECK(open.report().digests_checked == 1);  // the other was compared with it
  auto sent = all;
  sent.at("a").bytes[3] ^= std::byte{4};
  sent["b"] = sent.at("a");
  update<Executor> again = start_in(tested, {.mode = update_mode::direct, .digests = told});
  must(tested.send(again, sent));
  check_refused(again.finish(), error_code::corrupt, "a");
  must(again.retract("b"));  // and with it a
  must(tested.send(again, all));
  must(again.finish());
  CHECK(tested.dense("a") == all.at("a").bytes);
}

TEST_CASE_TEMPLATE_DEFINE("digests of landings: storage in kernel order", Executor, landed_digests_maps) {
  namespace nv = reference::nvfp4;
  nv::layer layer = nvfp4_linear("l", {{"a", 96}, {"b", 104}}, 160);
  const auto all = nvfp4_checkpoint({layer}, 1);
  const digest_list told = told_of(all);
  for (const nv::backend to : {nv::backend::cutlass, nv::backend::trtllm}) {
    layer.to = to;
    nvfp4_engine<Executor> tested({layer});
    status refused;
    update<Executor> open = tested.model().start({.digests = told}, &refused);
    must(refused);
    tested.send(open, all);
    must(open.finish());
    CHECK(open.report().digests_checked == static_cast<std::int64_t>(told.size()));
    digest_list landed;
    must(open.landed_digests(&landed));
    for (const tile_digest& tile : landed) CHECK(tile.sum == plain_digest(all.at(tile.source), tile.part));
    tested.demand_cold(all);
  }
  kept_layer kept{.sizes = extents::matrix("l", 70, 70), .tensors = {{"l.weight", "l.weight_scale_inv", {{"l", 70, 70, {0, 70, 0, 70}}}}}};
  const auto scaled = kept_checkpoint(kept.tensors, 1);
  const digest_list sums = told_of(scaled);
  layout_engine<Executor> tested;
  tested.template add<MnMajorLinear>("l", kept.sizes);
  must(tested.model().seal());
  status refused;
  update<Executor> open = tested.model().start({.digests = sums}, &refused);
  must(refused);
  for (const auto& [name, value] : scaled) must(open.load(name, tested.place(value)));
  must(open.finish());
  CHECK(open.report().digests_checked == static_cast<std::int64_t>(sums.size()));
  demand_image(tested, mn_major_image(kept, scaled));
}

}  // namespace wreload::test
