#pragma once
/// Every operation of an update fails once: whatever fails, wherever, the model is as its mode promises.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "injected_run.hpp"

namespace wreload::test {

/// Which of the operations 0, 1, 2, … of each case fail: every `injection_stride`-th, of every `test_sparsity`-th. 1 on
/// the host.
template <class Executor>
inline constexpr std::int64_t injection_stride = 1;

template <class Executor>
bool fails_all() {
  return injection_stride<Executor> * test_sparsity() == 1;
}

/// Calls `attempt(n)` with each n until it returns false. Errors say where.
template <class Executor, class Attempt>
std::int64_t for_each_failure(const std::string& what, Attempt&& attempt, std::int64_t first = 0) {
  const std::int64_t stride = injection_stride<Executor> * test_sparsity();
  std::int64_t n = first % stride;
  for (bool goes_on = true; goes_on; n += stride) {
    try {
      goes_on = attempt(n);
    } catch (const std::runtime_error& error) {
      FAIL_CHECK(what << ", operation " << n << ": " << std::string(error.what()));
      break;
    }
  }
  return n;
}

TEST_CASE_TEMPLATE_DEFINE("every operation of an update fails once: the model is as before, or undefined", Executor, injection_update) {
  std::int64_t offset = 0, failures = 0;
  std::set<std::string> kinds;
  for (const injected_case& how : injected_cases())
    for (const bool by_destructor : {false, true}) {
      injected_run<Executor> run(how);
      const std::string what = how.name + (by_destructor ? ", destructor" : ", abort");
      for_each_failure<Executor>(what, [&](std::int64_t n) {
        run.prepare_next();
        run.plan().arm(n);
        const status result = run.update_once();
        const bool hit = run.plan().disarm();
        demand(hit != result.ok(), "an operation failed, and nobody says so: " + run.plan().hit());
        if (!hit) {
          run.check_passed();
          return false;
        }
        kinds.insert(run.plan().hit());
        ++failures;
        const std::string where = run.plan().hit() + " failed, " + result.message() + "; ";
        try {
          run.check_failed(result);
          const bool keeps = how.is_atomic(!run.reached_commit()) || !result.wrote_anything;
          if (by_destructor)
            run.open() = {};
          else
            must(run.open().abort());
          run.check_ended(keeps);
          if (n % 3 == 0)
            run.repair_without_kept();
          else if (n % 3 == 1)
            run.repair_directly();
          else
            run.repair_alike();
        } catch (const std::runtime_error& error) {
          throw std::runtime_error(where + error.what());
        }
        return true;
      }, offset++);
    }
  CHECK(failures > 0);
  for (const char* kind : {"check_idle", "begin", "land", "compare", "dequantise", "combine", "launch", "wait_for", "join", "wait",
                           "read", "write", "digest", "land_digested", "allocate", "hold", "exchange"})
    CHECK_MESSAGE((fails_all<Executor>() ? kinds.contains(kind) : true), kind << " never failed");
}

TEST_CASE_TEMPLATE_DEFINE("a device that is gone: from the n-th operation on everything fails, the undo too", Executor, injection_lasting) {
  std::int64_t offset = 0;
  for (const injected_case& how : injected_cases())
    for (const bool by_destructor : {false, true}) {
      injected_run<Executor> run(how);
      for_each_failure<Executor>(how.name + (by_destructor ? ", destructor" : ", abort"), [&](std::int64_t n) {
        run.prepare_next();
        run.plan().arm(n, true);
        const status result = run.update_once();
        if (result.ok()) {
          run.plan().disarm();
          run.check_passed();
          return false;
        }
        if (by_destructor)
          run.open() = {};
        else
          demand(!run.open().is_open() || !run.open().abort().ok(), "an abort whose operations failed says nothing");
        run.plan().disarm();
        run.check_ended(!result.wrote_anything, true);
        n % 2 == 0 ? run.repair_without_kept() : run.repair_alike();
        return true;
      }, offset++);
    }
}

TEST_CASE_TEMPLATE_DEFINE("every operation of an abort fails once: undefined, until a complete update", Executor, injection_undo) {
  for (const injected_case& how : injected_cases()) {
    const std::string what = how.name + ", abort of a committed update";
    injected_run<Executor> run(how);
    for (const bool by_destructor : {false, true})
      for_each_failure<Executor>(what, [&](std::int64_t n) {
        run.prepare_next();
        must(run.commit_once());
        run.plan().arm(n);
        status result;
        if (by_destructor)
          run.open() = {};
        else
          result = run.open().abort();
        const bool hit = run.plan().disarm();
        if (!by_destructor) demand(hit != result.ok(), "an operation failed, and nobody says so: " + run.plan().hit());
        run.check_ended(!hit && how.is_atomic(false), run.plan().hit() == "cancel");
        if (hit) demand(run.model().state() == model_state::undefined, "an undo failed, and the model is not undefined");
        n % 2 == 0 ? run.repair_without_kept() : run.repair_directly();
        return hit;
      });
  }
}

/// A model of two generations, the first on the spare pages.
template <class Executor>
struct two_generations {
  using engine_type = mixed_engine<Executor>;
  std::unique_ptr<engine_type> engine = engine_type::make();
  reference::checkpoint first = engine_type::checkpoint_of(1), second = engine_type::checkpoint_of(2);

  two_generations() {
    engine->reload(first);
    status refused;
    auto open = engine->model().start({.mode = update_mode::swap, .stream = engine->memory().stream(0)}, &refused);
    must(refused);
    must(engine->deliver(open, second));
    must(open.finish());
    engine->memory().drop_sources();
  }
  auto& model() { return engine->model(); }
  void demand_serves(const reference::checkpoint& wanted, std::int64_t version) {
    demand(model().state() == model_state::live, "the model is not live");
    demand(model().version() == version, "another version");
    std::string found = engine->difference(wanted);
    if (found.empty()) found = engine->disturbed();
    demand(found.empty(), found);
  }
  /// No page is left: every start is refused until `wake`; kept values have to come, static ones are the engine's.
  void demand_lost_then_repair() {
    demand(model().state() == model_state::asleep, "an exchange lost the pages, and the model does not sleep");
    demand(!model().can_roll_back() && !model().rollback().ok(), "a generation that is lost can be gone back to");
    status refused;
    demand(!model().start({}, &refused).is_open() && refused.code == error_code::wrong_state, "an update of no pages was accepted");
    must(model().wake());
    demand(model().state() == model_state::undefined, "awake, and not undefined");
    engine->write_table();
    engine->poison_gaps();
    reference::checkpoint without = first;
    for (const std::string& name : engine_type::kept_names()) without.erase(name);
    auto open = model().start({.mode = update_mode::swap, .stream = engine->memory().stream(0)}, &refused);
    must(refused);
    must(engine->deliver(open, without));
    demand(open.prepare().code == error_code::incomplete, "kept values that are lost serve");
    for (const std::string& name : engine_type::kept_names()) must(open.load(name, engine->place(first.at(name))));
    must(open.finish());
    demand_serves(first, 3);
  }
};

TEST_CASE_TEMPLATE_DEFINE("every operation of a rollback fails once: the generation stays, and can be left again", Executor, injection_rollback) {
  for (const bool tears : {false, true})
    for_each_failure<Executor>(tears ? "rollback, torn" : "rollback", [&](std::int64_t n) {
      two_generations<Executor> run;
      run.engine->plan.tears = tears;
      const std::vector<stream_ref> readers = {run.engine->memory().stream(2)};
      run.engine->plan.arm(n);
      const status result = run.model().rollback(readers);
      const bool hit = run.engine->plan.disarm();
      demand(hit != result.ok(), "an operation failed, and nobody says so");
      if (!hit) {
        run.demand_serves(run.first, 1);
        must(run.model().rollback(readers));
        run.demand_serves(run.second, 2);
        return false;
      }
      if (tears && run.engine->plan.hit() == "exchange") {
        demand(result.wrote_anything, "the pages are lost, and the status says that nothing was written");
        run.demand_lost_then_repair();
        return true;
      }
      demand(!result.wrote_anything, "nothing was written");
      run.demand_serves(run.second, 2);
      demand(run.model().can_roll_back(), "the generation before is gone");
      must(run.model().rollback(readers));
      run.demand_serves(run.first, 1);
      return true;
    });
}

TEST_CASE_TEMPLATE_DEFINE("rollback to the generation before the first: undefined, and no kept value serves", Executor, injection_first) {
  mixed_engine<Executor> engine;
  must(engine.model().seal());
  const auto a = mixed_engine<Executor>::checkpoint_of(1);
  status refused;
  auto open = engine.model().start({.mode = update_mode::swap, .stream = engine.memory().stream(0)}, &refused);
  must(refused);
  must(engine.deliver(open, a));
  must(open.finish());
  must(engine.model().rollback());
  CHECK(engine.model().state() == model_state::undefined);
  CHECK(engine.model().version() == 0);
  auto without = a;
  without.erase("attn.scalar");
  open = engine.model().start({.stream = engine.memory().stream(0)}, &refused);
  must(refused);
  must(engine.deliver(open, without));
  check_refused(open.finish(), error_code::incomplete, "attn.scalar");
  must(open.load("attn.scalar", engine.place(a.at("attn.scalar"))));
  must(open.finish());
  CHECK(engine.difference(a) == "");
  CHECK(engine.model().version() == 2);  // no number twice
}

TEST_CASE_TEMPLATE_DEFINE("every operation of sleep and wake fails once: still live, or asleep until a wake succeeds", Executor, injection_sleep) {
  using engine_type = mixed_engine<Executor>;
  std::set<std::string> kinds;
  bool passed = false;
  for_each_failure<Executor>("sleep and wake", [&](std::int64_t n) {
    auto engine = engine_type::make();
    auto& model = engine->model();
    const auto a = engine_type::checkpoint_of(1);
    engine->reload(a);
    const auto before = engine->image();
    engine->plan.arm(n);
    status slept = model.sleep();
    if (!slept.ok() && model.state() == model_state::live) {
      engine->plan.disarm();
      demand(engine->image() == before, "a sleep failed, and bytes changed");
      demand(!slept.wrote_anything, "a sleep failed, and says that something was written");
      slept = model.sleep();
    }
    demand(model.state() == model_state::asleep, "not asleep");
    status woke = model.wake();
    const bool hit = engine->plan.disarm();
    if (hit) kinds.insert(engine->plan.hit());
    if (!woke.ok()) {
      demand(model.state() == model_state::asleep, "a wake failed, and the model does not sleep on");
      status refused;
      demand(!model.start({}, &refused).is_open(), "an update of a model asleep was accepted");
      woke = model.wake();
    }
    must(woke);
    demand(model.state() == model_state::undefined, "awake, and not undefined");
    engine->poison_gaps();
    auto next = engine_type::checkpoint_of(2);
    for (const std::string& name : engine_type::kept_names()) next.erase(name);
    engine->reload(next);
    std::string found = engine->difference(over(a, next));
    if (found.empty()) found = engine->disturbed();
    demand(found.empty(), found);
    passed = !hit && slept.ok();
    return !passed;
  });
  for (const char* kind : {"read", "drop", "restore", "write", "fill", "land", "wait"})
    CHECK_MESSAGE((fails_all<Executor>() ? kinds.contains(kind) : true), kind << " never failed");
}

TEST_CASE_TEMPLATE_DEFINE("an exchange that loses the pages, in a commit or in the undo of one: asleep, and repaired", Executor, injection_torn) {
  for (const bool in_undo : {false, true})
    for (const bool by_destructor : {false, true}) {
      CAPTURE(in_undo);
      CAPTURE(by_destructor);
      two_generations<Executor> run;
      run.engine->plan.tears = true;
      status refused;
      auto open = run.model().start({.mode = update_mode::swap, .stream = run.engine->memory().stream(0)}, &refused);
      must(refused);
      must(run.engine->deliver(open, mixed_engine<Executor>::checkpoint_of(3)));
      must(open.prepare());
      if (in_undo) must(open.commit());
      run.engine->plan.arm_next("exchange");
      if (!in_undo) {
        const status result = open.commit();
        CHECK(result.code == error_code::execution_failed);
        CHECK(result.wrote_anything);
        CHECK(run.model().state() == model_state::updating);
      }
      if (by_destructor)
        open = {};
      else
        CHECK(open.abort().ok() != in_undo);
      CHECK(run.engine->plan.disarm());
      run.demand_lost_then_repair();
    }
}

TEST_CASE_TEMPLATE_DEFINE("every operation of seal fails once: it may be called again", Executor, injection_seal) {
  for_each_failure<Executor>("seal", [&](std::int64_t n) {
    mixed_engine<Executor> engine;
    engine.plan.arm(n);
    const status result = engine.model().seal();
    const bool hit = engine.plan.disarm();
    demand(hit != result.ok(), "an operation failed, and nobody says so");
    status refused;
    if (hit) demand(!engine.model().start({}, &refused).is_open(), "an update of a model that is not sealed was accepted");
    if (hit) must(engine.model().seal());
    const auto a = mixed_engine<Executor>::checkpoint_of(1);
    engine.reload(a);
    const std::string found = engine.difference(a);
    demand(found.empty(), found);
    return hit;
  });
}

TEST_CASE_TEMPLATE_DEFINE("every operation of an audit, a snapshot or a digest fails once: a status, and nothing else", Executor, injection_audit) {
  mixed_engine<Executor> engine, other;
  must(other.model().seal());
  must(engine.model().seal());
  const auto a = mixed_engine<Executor>::checkpoint_of(1);
  engine.reload(a);
  other.reload(a);
  const auto before = engine.image();
  model_snapshot copy;
  digest_list list;
  must(engine.model().snapshot(&copy));
  must(engine.model().digests(&list));
  for (int what = 0; what < 5; ++what)
    for_each_failure<Executor>("audit " + std::to_string(what), [&](std::int64_t n) {
      audit_result found;
      model_snapshot again;
      digest_list sums;
      engine.plan.arm(n);
      const status result = what == 0   ? engine.model().audit(other.model(), {}, &found)
                            : what == 1 ? engine.model().audit(copy, {}, &found)
                            : what == 2 ? engine.model().audit(list, {}, &found)
                            : what == 3 ? engine.model().snapshot(&again)
                                        : engine.model().digests(&sums);
      const bool hit = engine.plan.disarm();
      demand(hit != result.ok(), "an operation failed, and nobody says so");
      demand(engine.model().state() == model_state::live && engine.image() == before, "an audit changed something");
      if (!hit && what < 3) demand(found.mismatched.empty(), "the same bytes do not match");
      return hit;
    });
}

}  // namespace wreload::test
