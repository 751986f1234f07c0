#pragma once
/// Law 7: an update that ends without success is known to have; a later complete update repairs what it wrote.

#include "../property.hpp"
#include "failing_executor.hpp"
#include "generators.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_DEFINE("law 7: an abort before the first write changes nothing", Executor, torn_before_write) {
  engine<Executor> tested(small_model(), 1);
  const auto a = random_checkpoint(tested.layers(), 1);
  {  // never loaded: stays undefined
    update<Executor> open = tested.start();
    must(open.abort());
    CHECK(tested.model().state() == model_state::undefined);
  }
  tested.reload(a);
  const auto before = tested.image();
  for (const bool by_destructor : {false, true}) {
    update<Executor> open = tested.start();
    check_refused(open.load("nobody", tested.place(a.at("bias"))), error_code::unknown_name);
    check_refused(open.finish(), error_code::incomplete);
    if (by_destructor)
      open = {};
    else
      must(open.abort());
    CHECK(!open.is_open());
    CHECK(tested.model().state() == model_state::live);
    CHECK(tested.model().version() == 1);
    CHECK(before == tested.image());
  }
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload_partial({{"norm.weight", b.at("norm.weight")}});
  CHECK(tested.model().version() == 2);
}

TEST_CASE_TEMPLATE_DEFINE("law 7: an abort after a write leaves the model undefined until a complete update", Executor,
                          torn_after_write) {
  engine<Executor> tested(small_model(), 1);
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2, stored_as::mixed);
  const std::vector<std::string_view> names = {"norm.weight"};
  for (const bool by_destructor : {false, true})
    for (const char* written : {"norm.weight", "q.weight", "q.weight_scale_inv"}) {
      tested.reload(a);
      const std::int64_t version = tested.model().version();
      {
        update<Executor> open = tested.start();
        must(tested.send(open, a, written));
        if (!by_destructor) must(open.abort());
      }
      CHECK(tested.model().state() == model_state::undefined);
      CHECK(tested.model().version() == version);
      status refused;
      const update<Executor> partial = tested.model().start({.scope = update_scope::partial(names)}, &refused);
      CHECK(!partial.is_open());
      check_refused(refused, error_code::wrong_state);
      {  // a second attempt that fails, before its first write: still undefined
        update<Executor> open = tested.start();
      }
      CHECK(tested.model().state() == model_state::undefined);
      tested.reload(b);
      CHECK(tested.model().state() == model_state::live);
      CHECK(tested.model().version() == version + 1);
      tested.demand_cold(b);
    }
}

TEST_CASE_TEMPLATE_DEFINE("law 7: a random prefix of an update, aborted, is repaired by the next", Executor,
                          torn_random) {
  property("whatever had arrived", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 1));
    tested.reload(random_checkpoint(layers, draw_seed(), stored_as::mixed));
    const auto before = tested.image();
    {
      update<Executor> open = tested.start();
      std::vector<parcel> some = draw_delivery(random_checkpoint(layers, draw_seed(), stored_as::mixed));
      some.resize(static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(some.size()))));
      send_delivery(tested, open, some);
      if (one_in(2)) must(open.abort());
    }
    const bool changed = before != tested.image();
    demand(!changed || tested.model().state() == model_state::undefined,
           "bytes changed, and the model claims to be live");
    const auto next = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    update<Executor> open = tested.start();
    send_delivery(tested, open, draw_delivery(next));
    must(open.finish());
    tested.demand_cold(next);
    demand(tested.model().version() == 2, "two successful finishes");
  });
}

TEST_CASE_TEMPLATE_DEFINE("law 7: calls after the end are refused and write nothing", Executor, torn_after_end) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  tested.reload(a);
  update<Executor> aborted = tested.start();
  auto lane = aborted.lane(tested.memory().stream(1));
  must(aborted.abort());
  update<Executor> finished = tested.start();  // the aborted one's handle lives on beside it
  must(tested.send(finished, a));
  const auto before = tested.image();
  const auto b = random_checkpoint(tested.layers(), 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(tested.send(aborted, b, "norm.weight").code == error_code::aborted);
    CHECK(tested.send(lane, b, "norm.weight").code == error_code::aborted);
    CHECK(!aborted.finish().ok());
    CHECK(!aborted.retract("norm.weight").ok());
    CHECK(aborted.abort().ok());
  }
  CHECK(before == tested.image());
  must(finished.finish());
  CHECK(!tested.send(finished, b, "norm.weight").ok());
  CHECK(finished.abort().ok());  // too late, and harmless
  CHECK(tested.model().state() == model_state::live);
  tested.demand_cold(a);
}

TEST_CASE_TEMPLATE_DEFINE("law 7: an update may be moved; the destructor of the empty handle does nothing", Executor,
                          torn_moved) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  update<Executor> kept;
  {
    update<Executor> first = tested.start();
    must(tested.send(first, a));
    kept = std::move(first);
  }
  CHECK(tested.model().state() == model_state::updating);
  must(kept.finish());
  tested.demand_cold(a);
}

/// Runs with failing_executor<Executor>.
TEST_CASE_TEMPLATE_DEFINE("law 7: an execution error is sticky, and leaves the model undefined", Executor,
                          torn_execution) {
  using failing = failing_executor<Executor>;
  engine<failing> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  failing& run = tested.model().executor();
  for (int where = 0; where < 4; ++where) {
    CAPTURE(where);
    tested.reload(a);
    const std::int64_t version = tested.model().version();
    update<failing> open = tested.start();
    (where == 0   ? run.lands_left
     : where == 1 ? run.lands_left
     : where == 2 ? run.dequants_left
                  : run.waits_left) = where == 1 ? 2 : 0;
    status first;
    for (const auto& [name, value] : b)
      if (first.ok()) first = open.load(name, tested.place(value));
    CHECK(first.ok() == (where > 1));
    if (first.ok()) first = open.finish();
    CHECK(first.code == error_code::execution_failed);
    CHECK(first.is_final());
    run.lands_left = run.dequants_left = run.waits_left = -1;
    const auto before = tested.image();
    CHECK(tested.send(open, b, "norm.weight").code == error_code::execution_failed);
    CHECK(open.retract("norm.weight").code == error_code::execution_failed);
    CHECK(open.prepare().code == error_code::execution_failed);
    CHECK(open.finish().code == error_code::execution_failed);
    CHECK(before == tested.image());
    CHECK(tested.model().version() == version);
    (void)open.abort();
    CHECK(tested.model().state() == model_state::undefined);
    status refused;
    const std::vector<std::string_view> names = {"norm.weight"};
    CHECK(!tested.model().start({.scope = update_scope::partial(names)}, &refused).is_open());
    tested.reload(b);
    tested.demand_cold(b);
  }
}

TEST_CASE_TEMPLATE_DEFINE("prepare, commit and publish one by one", Executor, torn_stages) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  update<Executor> open = tested.start();
  check_refused(open.commit(), error_code::wrong_state);
  check_refused(open.publish(), error_code::wrong_state);
  must(tested.send(open, b));
  const auto landed = tested.image();
  must(open.prepare());
  CHECK(landed == tested.image());  // launched nothing
  check_refused(tested.send(open, b, "norm.weight"), error_code::wrong_state);
  check_refused(open.retract("norm.weight"), error_code::wrong_state);
  check_refused(open.prepare(), error_code::wrong_state);
  check_refused(open.publish(), error_code::wrong_state);
  event_ref done;
  must(open.commit(&done));
  check_refused(open.commit(), error_code::wrong_state);
  CHECK(tested.model().version() == 1);  // only publish says so
  must(open.publish());
  CHECK(tested.model().version() == 2);
  CHECK(open.report().version == 2);
  tested.demand_cold(b);

  update<Executor> again = tested.start();
  must(tested.send(again, a));
  must(again.prepare());
  must(again.abort());  // a prepared update may be given up
  CHECK(tested.model().state() == model_state::undefined);
  tested.reload(a);
  tested.demand_cold(a);

  update<Executor> mixed = tested.start();
  must(tested.send(mixed, b));
  must(mixed.prepare());
  must(mixed.finish());  // takes up where the stages stand
  tested.demand_cold(b);
}

}  // namespace wreload::test
