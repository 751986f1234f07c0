#pragma once
/// Mode swap, rollback and sleep: what an arena gives.

#include <string>
#include <vector>

#include "modes_suite.hpp"

namespace wreload::test {

/// An engine whose weights lie in an arena with spare pages.
template <class Executor>
struct arena_engine : engine<Executor> {
  explicit arena_engine(std::vector<reference::layer> layers, std::int64_t gap_elements = 0)
      : engine<Executor>(std::move(layers), gap_elements, [](model<Executor>&) {}, true) {}
};

TEST_CASE_TEMPLATE_DEFINE("swap: the next generation is built beside the live one", Executor, swap_atomic) {
  property("partial and complete updates, aborts at any step, rollback", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    arena_engine<Executor> tested(layers, draw_small(0, 2));
    auto logical = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    {  // cold, too
      update<Executor> open = start_in(tested, {.mode = update_mode::swap});
      send_delivery(tested, open, draw_delivery(logical));
      demand(tested.model().state() == model_state::undefined, "not undefined yet");
      must(open.finish());
      tested.demand_cold(logical);
    }
    for (std::int64_t left = draw_small(1, 4); left > 0; --left) {
      const auto before = tested.image();
      const std::int64_t version = tested.model().version();
      const bool is_complete = one_in(2);
      const auto all = random_checkpoint(layers, draw_seed(), stored_as::mixed);
      const auto next = is_complete ? all : draw_subset(all);
      std::vector<std::string_view> names;
      for (const auto& entry : next) names.push_back(entry.first);
      start_options options{.mode = update_mode::swap};
      if (!is_complete) options.scope = update_scope::partial(names);
      update<Executor> open = start_in(tested, options);
      send_delivery(tested, open, draw_delivery(next));
      const std::int64_t steps = draw(0, 4);
      if (steps > 0) must(open.prepare());
      demand(before == tested.image() && tested.model().state() == model_state::live, "live bytes changed before the commit");
      if (steps > 1) must(open.commit());
      if (steps < 3) {
        must(open.abort());
        demand(before == tested.image(), "the abort did not bring every byte back");
        demand(tested.model().version() == version && tested.model().state() == model_state::live, "not as before");
        continue;
      }
      must(open.publish());
      const auto after = tested.image();
      tested.demand_cold(reference::overlay(logical, next));
      if (steps == 4) {  // back, and forward again
        must(tested.model().rollback());
        demand(before == tested.image() && tested.model().version() == version, "not the generation before");
        must(tested.model().rollback());
        demand(after == tested.image(), "not the generation after");
        must(tested.model().rollback());
        continue;
      }
      logical = reference::overlay(logical, next);
      tested.memory().drop_sources();
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("rollback: versions are never given twice, and a new update ends the way back", Executor,
                          swap_rollback) {
  arena_engine<Executor> tested(three_layers());
  const auto a = random_checkpoint(tested.layers(), 1), b = random_checkpoint(tested.layers(), 2);
  model<Executor>& model = tested.model();
  tested.reload(a);
  CHECK(model.can_roll_back() == (mode_under_test() == update_mode::swap));
  const auto swap_to = [&](const reference::checkpoint& next) {
    update<Executor> open = start_in(tested, {.mode = update_mode::swap});
    must(tested.send(open, next));
    check_refused(model.rollback(), error_code::wrong_state, "");
    must(open.finish());
  };
  swap_to(b);
  CHECK(model.version() == 2);
  must(model.rollback());
  CHECK(model.version() == 1);
  CHECK(model.layer_version("a") == 1);
  CHECK(tested.difference(a) == "");
  swap_to(b);
  CHECK(model.version() == 3);
  CHECK(tested.difference(b) == "");
  {  // an update that is given up has used the spare pages
    update<Executor> open = start_in(tested, {.mode = update_mode::swap});
    must(open.abort());
  }
  CHECK(!model.can_roll_back());
  check_refused(model.rollback(), error_code::wrong_state, "generation");
  CHECK(tested.difference(b) == "");
}

TEST_CASE_TEMPLATE_DEFINE("swap needs an arena with spare pages that holds every tensor", Executor, swap_needs) {
  status refused;
  if (mode_under_test() != update_mode::swap) {
    engine<Executor> elsewhere(three_layers());
    CHECK(!elsewhere.model().start({.mode = update_mode::swap}, &refused).is_open());
    check_refused(refused, error_code::wrong_state, "arena");
  }
  typename Executor::arena single;
  must(single.open({.bytes = 4096}));
  CHECK(single.open({.bytes = 4096}).code == error_code::wrong_state);
  CHECK(single.spare() == nullptr);
  CHECK(single.take(single.bytes() + 1, 1) == nullptr);
  std::byte* place = single.take(16, 256);
  model<Executor> inside;
  must(inside.template add<Plain>("x", extents::tensor("x", {4}, dtype::fp32), place));
  must(inside.use(single));
  must(inside.seal());
  CHECK(!inside.start({.mode = update_mode::swap}, &refused).is_open());
  check_refused(refused, error_code::wrong_state, "spare");
  test_memory<Executor> memory;
  model<Executor> outside;
  must(outside.template add<Plain>("y", extents::tensor("y", {4}, dtype::fp32), single.take(16, 256)));
  must(outside.template add<Plain>("x", extents::tensor("x", {4}, dtype::fp32), memory.allocate(16, std::byte{})));
  must(outside.use(single));
  if (memory.arena() == nullptr) check_refused(outside.seal(), error_code::wrong_state, "x");
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{-5}}) {
    typename Executor::arena none;
    CHECK(none.open({.bytes = bytes}).code == error_code::bad_argument);
  }
  start_options options{.mode = update_mode::swap, .undo = undo_mode::host};
  arena_engine<Executor> tested(three_layers());
  CHECK(!tested.model().start(options, &refused).is_open());
  check_refused(refused, error_code::bad_argument, "undo");
}

/// What sleeping has to keep: a kept scale and what follows from it alone, a static table; what it may lose: the rest.
struct SleepingLayout
    : ParamLayout<Param<tags::weight, StorageView<bf16>>, Param<tags::input_scale, PerShard<fp32>, Kept>,
                  Param<tags::table, StorageView<fp32>, Static>,
                  Derived<tags::alternative, Bind, Reciprocal<Max<tags::input_scale, Across<shards>>>>> {};

TEST_CASE_TEMPLATE_DEFINE("sleep: pages go and come back; kept and static params stay, pads are rewritten", Executor,
                          swap_sleep) {
  layout_engine<Executor> tested;
  tested.memory().in_arena(1 << 16);
  tested.template add<SleepingLayout>("l", extents::matrix("l", 6, 4));
  extents padded = extents::matrix("p", 5, 4);
  padded.shards[0].checkpoint_rows = 3;
  tested.template add<SleepingLayout>("p", padded);
  model<Executor>& model = tested.model();
  must(model.seal());
  const auto a = [](const char* name, int seed) {
    noise random(static_cast<std::uint64_t>(seed));
    return random_tensor(dtype::bf16, {name[0] == 'l' ? 6 : 3, 4}, false, random);
  };
  const std::vector<float> table(24, 3.5F);
  tested.memory().write(tested.data("l.table"), table.data(), 96);
  {
    update<Executor> open = tested.start();
    for (const char* name : {"l", "p"}) {
      must(open.load(std::string(name) + ".weight", tested.place(a(name, 1))));
      must(open.load(std::string(name) + ".input_scale", tested.place(floats(1, 0.25F))));
    }
    must(open.finish());
  }
  const auto before = tested.image();
  {
    update<Executor> open = tested.start();
    check_refused(model.sleep(), error_code::wrong_state, "open");
  }
  CHECK(tested.image() == before);
  check_refused(model.wake(), error_code::wrong_state, "awake");
  must(model.sleep());
  CHECK(model.state() == model_state::asleep);
  CHECK(tested.memory().arena()->allocated_bytes() == 0);
  CHECK(!tested.memory().arena()->is_resident());
  status refused;
  CHECK(!model.start({}, &refused).is_open());
  check_refused(refused, error_code::wrong_state, "asleep");
  CHECK(model.sleep().code == error_code::wrong_state);
  must(model.wake());
  CHECK(model.state() == model_state::undefined);
  const std::vector<std::string_view> names = {"l.weight"};
  CHECK(!model.start({.scope = update_scope::partial(names)}, &refused).is_open());
  check_refused(refused, error_code::wrong_state, "undefined");
  {
    update<Executor> open = tested.start();
    for (const char* name : {"l", "p"}) must(open.load(std::string(name) + ".weight", tested.place(a(name, 1))));
    must(open.finish());  // without the kept scales
  }
  CHECK(model.state() == model_state::live);
  CHECK(tested.image() == before);
}

}  // namespace wreload::test
