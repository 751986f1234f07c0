#pragma once
/// What the modes promise beyond the laws that every suite tests in each mode (see update_mode.hpp): when live bytes
/// change, how much is kept aside, what comes back.

#include <algorithm>
#include <string>
#include <vector>

#include "../property.hpp"
#include "generators.hpp"
#include "layout_engine.hpp"

namespace wreload::test {

/// Memory aside: as much as it takes.
inline start_options aside(update_mode mode, std::int64_t budget = staging_memory::no_limit) {
  return {.mode = mode, .staging = {.budget_bytes = budget}};
}

/// Opens an update in a mode of the test's own.
template <class Executor>
update<Executor> start_in(engine<Executor>& tested, const start_options& options) {
  status refused;
  update<Executor> opened = tested.model().start(options, &refused);
  must(refused);
  return opened;
}

/// Names of the checkpoint tensors of a layer.
inline std::vector<std::string> names_of(const reference::layer& layer) {
  std::vector<std::string> names;
  for (const reference::source& source : reference::sources_of(layer)) names.push_back(source.name);
  return names;
}

/// Three equal FP8 layers (35 + 36 bytes each), and a norm.
inline std::vector<reference::layer> three_layers() {
  return {linear("a", 5, 7), linear("b", 5, 7), linear("c", 5, 7), plain("norm", {7})};
}

TEST_CASE_TEMPLATE_DEFINE("law 8: a staged update touches no live byte before its commit", Executor, modes_staged_atomic) {
  property("any prefix, aborted; then all of it", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 1));
    const auto a = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    const auto b = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    tested.reload(a);
    const auto before = tested.image();
    const std::int64_t memory = tested.model().executor().allocated_bytes();
    {
      update<Executor> open = start_in(tested, aside(update_mode::staged));
      std::vector<parcel> some = draw_delivery(b);
      const bool whole = one_in(3);
      if (!whole) some.resize(static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(some.size()))));
      send_delivery(tested, open, some);
      if (whole) must(open.prepare());
      demand(before == tested.image(), "live bytes changed before the commit");
      demand(tested.model().state() == model_state::live, "the model does not serve while an update is staged");
      if (one_in(2)) must(open.abort());
    }
    demand(before == tested.image() && tested.model().state() == model_state::live, "an aborted staged update left a trace");
    demand(tested.model().executor().allocated_bytes() == memory, "memory aside was not given back");
    update<Executor> open = start_in(tested, aside(update_mode::staged));
    send_delivery(tested, open, draw_delivery(b));
    must(open.prepare());
    demand(before == tested.image(), "prepare wrote");
    must(open.commit());
    must(open.publish());
    tested.demand_cold(b);
    demand(tested.model().executor().allocated_bytes() == memory, "memory aside was not given back");
  });
}

TEST_CASE_TEMPLATE_DEFINE("staged: compact, in memory that the caller lends", Executor, modes_staged_lent) {
  engine<Executor> tested(three_layers());
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  const auto before = tested.image();
  std::int64_t needed = 0;  // in units of 16 bytes
  for (const auto& [name, value] : b) needed += (static_cast<std::int64_t>(value.bytes.size()) + 15) / 16 * 16;
  const auto lend = [&](std::int64_t bytes) {
    start_options options{.mode = update_mode::staged};
    std::byte* memory = tested.memory().allocate(bytes, std::byte{});
    options.staging.lent = {memory, static_cast<std::size_t>(bytes)};
    return options;
  };
  {
    update<Executor> open = start_in(tested, lend(needed));
    must(tested.send(open, b));
    must(open.finish());
    CHECK(open.report().staged_bytes == needed);
    CHECK(open.report().peak_extra_device_bytes == 0);
    CHECK(open.report().pause_seconds > 0);
    CHECK(tested.difference(b) == "");
  }
  {
    update<Executor> open = start_in(tested, lend(needed - 16));
    status refused;
    for (const auto& [name, value] : a)
      if (refused.ok()) refused = open.load(name, tested.place(value));
    check_refused(refused, error_code::over_budget, "norm");  // the last by name
    check_refused(open.finish(), error_code::incomplete, "norm");
    must(open.retract("a.weight"));  // makes room; then that is missing
    must(tested.send(open, a, "norm"));
    check_refused(open.finish(), error_code::incomplete, "a.weight");
    must(open.abort());
    CHECK(tested.difference(b) == "");
    CHECK(tested.model().state() == model_state::live);
  }
  for (const update_mode mode : {update_mode::staged, update_mode::layerwise}) {
    status refused;
    CHECK(!tested.model().start({.mode = mode}, &refused).is_open());
    check_refused(refused, error_code::bad_argument, "aside");
  }
}

TEST_CASE_TEMPLATE_DEFINE("staged: what came again after retract is what lands", Executor, modes_staged_retract) {
  engine<Executor> tested(small_model(), 1);
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2);
  for (const update_mode mode : {update_mode::staged, update_mode::layerwise}) {
    tested.reload(a);
    update<Executor> open = start_in(tested, aside(mode));
    must(tested.send(open, a));
    for (const auto& [name, value] : b) must(open.retract(name));
    must(tested.send(open, b));
    must(open.finish());
    CHECK(tested.difference(b) == "");
  }
}

TEST_CASE_TEMPLATE_DEFINE("staged: the sender's digests are checked before a live byte changes", Executor,
                          modes_digests) {
  engine<Executor> tested({linear("wide", 300, 5), plain("norm", {7}), plain("none", {0, 4})});
  const auto a = random_checkpoint(tested.layers(), 1);
  auto b = random_checkpoint(tested.layers(), 2, stored_as::mixed);
  tested.reload(a);
  const auto before = tested.image();
  digest_list told;
  for (const auto& [name, value] : b)
    append_digests(name, {.data = value.bytes.data(), .type = value.type, .extents = shape_of(value.sizes)}, told);
  told.push_back({{}, "someone.else", {0, 1, 0, 1}, 7});
  start_options options = aside(update_mode::staged);
  options.digests = told;
  for (const char* corrupt : {"wide.weight", "norm"}) {
    auto sent = b;
    sent.at(corrupt).bytes.back() ^= std::byte{1};
    update<Executor> open = start_in(tested, options);
    must(tested.send(open, sent));
    check_refused(open.finish(), error_code::corrupt, corrupt);
    CHECK(before == tested.image());
    must(open.retract(corrupt));
    must(tested.send(open, b, corrupt));
    must(open.finish());
    CHECK(open.report().digests_checked == static_cast<std::int64_t>(told.size()) - 1);
    CHECK(open.report().digests_unchecked == 1);
    CHECK(tested.difference(b) == "");
    tested.reload(a);
  }
  options.mode = update_mode::layerwise;
  status refused;
  CHECK(!tested.model().start(options, &refused).is_open());
  check_refused(refused, error_code::bad_argument, "digests");
}

TEST_CASE_TEMPLATE_DEFINE("layerwise: a layer lands when it is whole, whatever came first", Executor, modes_layerwise) {
  engine<Executor> tested(three_layers(), 1);
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2, stored_as::mixed);
  const auto bf16 = random_checkpoint(tested.layers(), 3, stored_as::bf16);
  for (const auto& next : {b, bf16, random_checkpoint(tested.layers(), 4)})
    for (const bool scales_first : {false, true}) {
      tested.reload(a);
      auto cold = tested.image();
      update<Executor> open = start_in(tested, aside(update_mode::layerwise));
      for (const reference::layer& layer : tested.layers()) {
        std::vector<std::string> names;
        for (const std::string& name : names_of(layer))
          if (next.contains(name)) names.push_back(name);
        if (scales_first) std::reverse(names.begin(), names.end());
        for (std::size_t i = 0; i < names.size(); ++i) {
          CHECK(cold == tested.image());  // nothing of this layer yet
          must(tested.send(open, next, names[i]));
        }
        // Now all of the layer, and of no other one.
        auto logical = a;
        for (const reference::layer& done : tested.layers()) {
          for (const std::string& name : names_of(done)) logical.erase(name);
          for (const std::string& name : names_of(done))
            if (next.contains(name)) logical[name] = next.at(name);
          if (&done == &layer) break;
        }
        CHECK(tested.difference(logical) == "");
        cold = tested.image();
      }
      CHECK(open.report().converted_rows == 0);  // counted at the end
      must(open.finish());
      CHECK(tested.difference(next) == "");
    }
}

TEST_CASE_TEMPLATE_DEFINE("layerwise: a budget of one layer serves all, one after the other", Executor,
                          modes_layerwise_budget) {
  engine<Executor> tested(three_layers());
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  constexpr std::int64_t layer_bytes = 48 + 48;  // 35 codes, 9 scales of 4 bytes; in units of 16
  {
    update<Executor> open = start_in(tested, aside(update_mode::layerwise, layer_bytes));
    for (const char* layer : {"a", "b", "c"})
      for (const char* leaf : {".weight_scale_inv", ".weight"}) must(tested.send(open, b, std::string(layer) + leaf));
    must(tested.send(open, b, "norm"));
    must(open.finish());
    CHECK(open.report().staged_bytes == layer_bytes);
    CHECK(open.report().direct_layers.empty());
    CHECK(tested.difference(b) == "");
  }
  tested.reload(a);
  {  // weights first: the second layer finds half of the room
    update<Executor> open = start_in(tested, aside(update_mode::layerwise, layer_bytes));
    must(tested.send(open, b, "a.weight"));
    must(tested.send(open, b, "b.weight"));
    const auto before = tested.image();
    check_refused(tested.send(open, b, "c.weight"), error_code::over_budget, "c.weight");
    CHECK(before == tested.image());
    CHECK(tested.difference(a) == "");
    check_refused(tested.send(open, b, "a.weight_scale_inv"), error_code::over_budget, "a.weight_scale_inv");
    must(open.abort());
    CHECK(tested.model().state() == model_state::live);
    CHECK(tested.difference(a) == "");
  }
  {
    start_options options = aside(update_mode::layerwise, layer_bytes);
    options.staging.or_direct = true;
    update<Executor> open = start_in(tested, options);
    for (const char* leaf : {".weight", ".weight_scale_inv"})
      for (const char* layer : {"a", "b", "c"}) must(tested.send(open, b, std::string(layer) + leaf));
    must(tested.send(open, b, "norm"));
    must(open.finish());
    CHECK(!open.report().direct_layers.empty());
    CHECK(open.report().staged_bytes <= layer_bytes);
    CHECK(tested.difference(b) == "");
  }
}

TEST_CASE_TEMPLATE_DEFINE("layerwise: any budget with or_direct equals a cold start", Executor, modes_or_direct) {
  property("any order, any cut, any budget", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 1));
    const auto a = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    const auto b = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    tested.reload(a);
    const auto before = tested.image();
    start_options options = aside(update_mode::layerwise, draw(1, 3000));
    options.staging.or_direct = true;
    if (one_in(2)) options.undo = undo_mode::host;
    for (const bool finishes : {false, true}) {
      update<Executor> open = start_in(tested, options);
      std::vector<parcel> some = draw_delivery(b);
      if (!finishes) some.resize(static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(some.size()))));
      send_delivery(tested, open, some);
      if (finishes) {
        must(open.finish());
        tested.demand_cold(b);
        continue;
      }
      must(open.abort());
      if (options.undo == undo_mode::none) break;
      demand(before == tested.image() && tested.model().state() == model_state::live, "not all came back");
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("layerwise: half of a converted pair taken back takes the other half along", Executor,
                          modes_layerwise_retract) {
  engine<Executor> tested({linear("w", 5, 7), plain("norm", {7})});
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2);
  for (const char* taken : {"w.weight", "w.weight_scale_inv"}) {
    tested.reload(a);
    update<Executor> open = start_in(tested, aside(update_mode::layerwise));
    must(tested.send(open, a));
    must(open.retract(taken));
    check_refused(open.finish(), error_code::incomplete, "w.weight");
    must(tested.send(open, b, taken));
    CHECK(!open.finish().ok());  // the other half is missing
    must(tested.send(open, b, std::string(taken) == "w.weight" ? "w.weight_scale_inv" : "w.weight"));
    must(open.finish());
    auto logical = b;
    logical["norm"] = a.at("norm");
    CHECK(tested.difference(logical) == "");
  }
}

TEST_CASE_TEMPLATE_DEFINE("codes whose scales are at hand are converted on their way, the others in place", Executor,
                          modes_fused) {
  // Rows of 16 codes: aligned as a conversion on the way asks. Ragged blocks, two shards.
  engine<Executor> tested({linear("w", {whole_shard("q", 5), whole_shard("kv", 4)}, 16), linear("odd", 5, 7)});
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2);
  const auto send_all = [&](update<Executor>& open, const reference::checkpoint& all, bool scales_first) {
    for (const bool scales : {scales_first, !scales_first})
      for (const auto& [name, value] : all)
        if (name.ends_with("_scale_inv") == scales) must(open.load(name, tested.place(value)));
  };
  tested.reload(a);
  for (const bool scales_first : {true, false}) {
    update<Executor> open = start_in(tested, aside(update_mode::staged));
    send_all(open, b, scales_first);
    must(open.finish());
    CHECK(open.report().fused_rows == 9);  // whatever came first: both lie aside
    CHECK(open.report().converted_rows == 14);
    CHECK(tested.difference(b) == "");
    tested.reload(a);
  }
  for (const update_mode mode : {update_mode::staged, update_mode::layerwise}) {  // rows of two tensors in turn
    update<Executor> open = start_in(tested, aside(mode));
    for (std::int64_t row = 0; row < 5; ++row)
      for (const char* name : {"kv.weight", "q.weight"}) {
        tensor_ref part = tested.place(b.at(name));
        if (row >= part.extents[0]) continue;
        const box where = box::rows(part.extents, row, row + 1);
        part.data = static_cast<const std::byte*>(part.data) + row * 16;
        part.extents = {1, 16};
        must(open.load(name, part, where));
      }
    for (const auto& [name, value] : b)
      if (name != "kv.weight" && name != "q.weight") must(tested.send(open, b, name));
    must(open.finish());
    CHECK(open.report().fused_rows == 9);
    CHECK(open.report().converted_rows == 14);
    CHECK(tested.difference(b) == "");
    tested.reload(a);
  }
  if (!Executor::converts_from(memory_kind::pageable)) return;  // else where a source lies decides
  for (const bool scales_first : {true, false}) {
    update<Executor> open = start_in(tested, {.mode = update_mode::direct});
    send_all(open, b, scales_first);
    if (scales_first) {  // half of what is converted already takes the other half along
      must(open.retract("q.weight_scale_inv"));
      check_refused(open.finish(), error_code::incomplete, "q.weight");
      must(tested.send(open, b, "q.weight"));
      must(tested.send(open, b, "q.weight_scale_inv"));
    }
    must(open.finish());
    CHECK(open.report().converted_rows == (scales_first ? 19 : 14));  // q a second time
    CHECK(open.report().fused_rows == (scales_first ? 9 : 0));
    CHECK(tested.difference(b) == "");
    tested.reload(a);
  }
}

TEST_CASE_TEMPLATE_DEFINE("undo: an abort at any point puts every byte back", Executor, modes_undo) {
  property("direct, layerwise and staged", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 2));
    const auto a = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    tested.reload(a);
    const auto before = tested.image();
    constexpr update_mode modes[] = {update_mode::direct, update_mode::layerwise, update_mode::staged};
    for (int i = 0; i < 2; ++i) {
      start_options options = aside(modes[draw(0, 2)]);
      options.undo = undo_mode::host;
      update<Executor> open = start_in(tested, options);
      std::vector<parcel> some = draw_delivery(random_checkpoint(layers, draw_seed(), stored_as::mixed));
      const std::int64_t steps = draw(0, 3);  // prepare, commit
      if (steps == 0) some.resize(static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(some.size()))));
      send_delivery(tested, open, some);
      if (steps > 1) must(open.prepare());
      if (steps > 2) must(open.commit());
      must(open.abort());
      demand(before == tested.image(), "not every byte came back");
      demand(tested.model().state() == model_state::live && tested.model().version() == 1, "not live at version 1");
      tested.memory().drop_sources();
    }
    const auto next = draw_subset(random_checkpoint(layers, draw_seed(), stored_as::mixed));
    tested.reload_partial(next);
    tested.demand_cold(reference::overlay(a, next));
  });
}

TEST_CASE_TEMPLATE_DEFINE("landing and adopt: where a transport may write, in each mode", Executor, modes_adopt) {
  engine<Executor> tested({linear("w", 5, 7), plain("norm", {7})});
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2);
  for (const update_mode mode : {update_mode::direct, update_mode::layerwise, update_mode::staged, update_mode::swap}) {
    if (mode == update_mode::swap && tested.memory().arena() == nullptr) continue;
    for (const bool undone : {true, false}) {
      tested.reload(a);
      const auto before = tested.image();
      start_options options = mode == update_mode::direct || mode == update_mode::swap ? start_options{.mode = mode} : aside(mode);
      if (undone && mode != update_mode::swap) options.undo = undo_mode::host;
      update<Executor> open = start_in(tested, options);
      const std::vector<std::string_view> names = {"w.weight", "norm"};
      if (mode != update_mode::direct || undone)
        check_refused(open.adopt(names, load_form::checkpoint), error_code::unsupported, "w.weight");
      for (const std::string_view name : names) {
        const reference::tensor& value = b.at(std::string(name));
        direct_landing to;
        must(open.landing(name, {}, value.type, &to));
        const std::int64_t row_bytes = to.cols * bytes_of(to.type);
        for (std::int64_t r = 0; r < to.rows; ++r)
          tested.memory().write(to.data + r * to.row_stride_bytes, value.bytes.data() + r * row_bytes, row_bytes);
      }
      if (mode != update_mode::direct) CHECK(before == tested.image());
      must(open.adopt(names, load_form::checkpoint));
      CHECK(tested.send(open, b, "norm").code == error_code::duplicate);
      must(tested.send(open, b, "w.weight_scale_inv"));
      if (undone) {
        must(open.abort());
        CHECK(before == tested.image());
        CHECK(tested.model().state() == model_state::live);
        continue;
      }
      must(open.finish());
      CHECK(tested.difference(b) == "");
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("twins that differ are refused before anything is live", Executor, modes_twins) {
  engine<Executor> tested({plain("embed", {8, 3}, dtype::fp32, {dtype::bf16}), plain("norm", {4})}, 0,
                          [](model<Executor>& model) { model.same_as("embed", "lm_head"); });
  auto a = random_checkpoint(tested.layers(), 1);
  auto b = random_checkpoint(tested.layers(), 2, stored_as::mixed);
  noise random(7);
  b["embed"] = random_tensor(dtype::bf16, {8, 3}, false, random);
  tested.reload(a);
  const auto before = tested.image();
  update<Executor> open = start_in(tested, aside(update_mode::staged));
  must(tested.send(open, b));
  const reference::tensor& head = a.at("embed");
  const box lower{{4, 0}, {4, 3}};
  const placed_source at = tested.memory().place(head.bytes.data() + 48, 48);
  must(open.load("lm_head", {at.data, dtype::fp32, {4, 3}, {}, at.memory}, lower));
  check_refused(open.finish(), error_code::conflict, "lm_head");
  CHECK(before == tested.image());
  must(open.retract("lm_head"));
  must(tested.send(open, b, "embed"));
  must(open.load("lm_head", tested.place(b.at("embed"))));
  must(open.finish());
  CHECK(tested.difference(b) == "");
}

TEST_CASE_TEMPLATE_DEFINE("a thousand updates leave memory flat and addresses where they were", Executor,
                          modes_thousand) {
  engine<Executor> tested(small_model(), 1);
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2, stored_as::mixed);
  const auto addresses = tested.addresses();
  tested.reload(a);
  const std::int64_t memory = tested.model().executor().allocated_bytes();
  const bool has_arena = tested.memory().arena() != nullptr;
  for (int i = 0; i < 1000; ++i) {
    const auto mode = static_cast<update_mode>(i % (has_arena ? 4 : 3));
    start_options options = mode == update_mode::direct || mode == update_mode::swap ? start_options{.mode = mode} : aside(mode, 4096);
    options.addresses = {.list = addresses};
    if (mode == update_mode::layerwise) options.staging.where = memory_kind::pinned;
    update<Executor> open = start_in(tested, options);
    must(tested.send(open, i % 2 == 0 ? b : a));
    if (i % 50 == 49) {  // one that does not come to its end
      (void)open.abort();
      continue;
    }
    must(open.finish());
    if (i % 10 == 0) CHECK(tested.difference(i % 2 == 0 ? b : a) == "");
    tested.memory().drop_sources();
    CHECK(tested.model().executor().allocated_bytes() == memory);
  }
  audit_result audited;
  must(tested.model().audit(digest_list{}, {.list = addresses}, &audited));
  CHECK(audited.moved.empty());
  CHECK(audited.memory_growth == 0);
}

TEST_CASE_TEMPLATE_DEFINE("versions: of the model, and of each layer", Executor, modes_versions) {
  engine<Executor> tested(three_layers());
  const auto a = random_checkpoint(tested.layers(), 1);
  CHECK(tested.model().layer_version("a") == 0);
  tested.reload(a);
  tested.reload_partial({{"norm", a.at("norm")}});
  CHECK(tested.model().version() == 2);
  CHECK(tested.model().layer_version("a") == 1);
  CHECK(tested.model().layer_version("norm") == 2);
  CHECK(tested.model().layer_version("nobody") == -1);
  status refused;
  CHECK(!tested.model().start({.base_version = 1}, &refused).is_open());
  check_refused(refused, error_code::wrong_base, "2");
  CHECK(tested.model().start({.base_version = 2}, &refused).is_open());
}

}  // namespace wreload::test
