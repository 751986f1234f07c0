#pragma once
/// Replayed buckets on a model of everything (FP8, NVFP4, experts, launchers, twins, kept and static tensors), in the modes
/// that make plans; what drops a plan; every operation of a replay fails once.

#include <set>

#include "bucket_delivery.hpp"
#include "injection_suite.hpp"

namespace wreload::test {

/// How buckets of an update are sent.
enum class sending { all_buckets, some_as_pieces };

/// One mixed engine, updates of which come in buckets of three tensors.
template <class Executor>
class bucket_run {
 public:
  using engine_type = mixed_engine<Executor>;
  using update_type = update<typename engine_type::executor_type>;

  explicit bucket_run(update_mode how) : mode(how), engine(engine_type::make()) {}

  update_mode mode;
  std::unique_ptr<engine_type> engine;
  update_type open = {};
  std::uint64_t turn = 0;
  std::set<std::string> left_out = {};  ///< names

  /// All of the same dtypes.
  static reference::checkpoint checkpoint(std::uint64_t number) { return engine_type::checkpoint_of(2 * (number % 4)); }

  std::vector<test_bucket> cut(const reference::checkpoint& all) const {
    std::vector<test_bucket> made;
    std::size_t count = 0;
    for (const auto& [name, value] : all) {
      if (left_out.contains(name)) continue;
      if (count++ % 3 == 0) made.emplace_back();
      parcel one = whole_parcel(name, value);
      if (name == runtime_name) one.form = load_form::runtime;
      made.back().add(one, 16);
    }
    return made;
  }
  /// With the input scales of `mlp` once more, as the engine keeps them.
  static constexpr const char* runtime_name = "mlp.input_scale";
  static reference::checkpoint with_runtime(reference::checkpoint all) {
    std::vector<float> values;
    for (const char* name : {"mlp.gate.input_scale", "mlp.up.input_scale"}) {
      values.emplace_back();
      std::memcpy(&values.back(), all.at(name).bytes.data(), sizeof(float));
    }
    all[runtime_name] = tensor_of<float>(dtype::fp32, {2}, values);
    return all;
  }

  status start(start_options options = {}) {
    options.mode = mode;
    options.stream = engine->memory().stream(0);
    status refused;
    open = engine->model().start(options, &refused);
    return refused;
  }
  status send(const reference::checkpoint& all, sending how = sending::all_buckets) {
    auto second = open.lane(engine->memory().stream(1));
    const auto buckets = cut(all);
    ++turn;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const std::size_t which = (i + turn) % buckets.size();
      const bool behind_event = which % 3 == 0;
      placed_bucket<Executor> placed(engine->memory(), buckets[which], all, 0);
      if (behind_event) placed.mark(test_device<Executor>::readable(placed.memory()));
      const bucket block = placed.get();
      const bool on_second = (i + turn) % 2 == 1;
      status result;
      if (how == sending::some_as_pieces && i >= 2)
        result = on_second ? second.load(placed.pieces()) : open.load(placed.pieces());
      else if (behind_event)
        result = on_second ? second.load(block, test_device<Executor>::event()) : open.load(block, test_device<Executor>::event());
      else
        result = on_second ? second.load(block) : open.load(block);
      if (!result.ok()) return result;
    }
    return {};
  }
  status update_once(const reference::checkpoint& all, sending how = sending::all_buckets, const start_options& options = {}) {
    status result = start(options);
    if (result.ok()) result = send(all, how);
    return result.ok() ? open.finish() : result;
  }
  void must_update(const reference::checkpoint& all, const start_options& options = {}) {
    must(update_once(all, sending::all_buckets, options));
    engine->memory().drop_sources();
  }

  void demand_bytes(const reference::checkpoint& logical) const {
    std::string found = engine->difference(logical);
    if (found.empty()) found = engine->disturbed();
    demand(found.empty(), found);
  }
  /// All buckets, or not all: some that are as in the plan may have come before the first that is not.
  void demand_replayed(bool expected) const {
    const auto count = open.report().replayed_buckets, all = static_cast<std::int64_t>(cut(checkpoint(0)).size());
    demand(expected ? count == all : count < all, std::to_string(count) + " of " + std::to_string(all) + " buckets were replayed");
  }
};

TEST_CASE_TEMPLATE_DEFINE("buckets: replays of a model of everything", Executor, replay_mixed) {
  for (const update_mode mode : {update_mode::direct, update_mode::swap}) {
    CAPTURE(name_of(mode));
    bucket_run<Executor> run(mode);
    std::string told;
    for (std::uint64_t i = 0; i < 4; ++i) {
      const auto all = run.checkpoint(i);
      run.must_update(all, {.detect_changes = i % 2 == 1});
      run.demand_bytes(all);
      run.demand_replayed(i > 0);
      if (i == 0) told = told_by(run.open.report());
      CHECK(told_by(run.open.report()) == told);
      CHECK(run.open.report().version == static_cast<std::int64_t>(i) + 1);
      for (const char* layer : {"qkv", "experts", "norm.weight", "embed.weight", "mlp", "attn"})
        CHECK(run.engine->model().layer_version(layer) == static_cast<std::int64_t>(i) + 1);
    }
    // Without the kept values: another plan, which counts on them.
    const auto values = run.checkpoint(3);
    run.left_out = mixed_engine<Executor>::kept_names();
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto logical = run.checkpoint(i);
      for (const std::string& name : run.left_out) logical[name] = values.at(name);
      run.must_update(run.checkpoint(i));
      run.demand_bytes(logical);
      if (i > 0) run.demand_replayed(true);
      CHECK(run.open.report().not_sent == static_cast<std::int64_t>(run.left_out.size()) + 1);  // and lm_head.weight
    }
    // With an undo image nothing is recorded, and the plan stays.
    if (mode == update_mode::direct) {
      run.must_update(run.checkpoint(1), {.undo = undo_mode::host});
      run.demand_replayed(false);
    }
    run.must_update(run.checkpoint(2));
    run.demand_replayed(true);
    // A plan is for one mode.
    run.left_out.clear();
    for (const update_mode other : {mode, mode == update_mode::swap ? update_mode::direct : update_mode::swap}) {
      run.mode = other;
      run.must_update(run.checkpoint(1));
      run.demand_bytes(run.checkpoint(1));
      run.demand_replayed(false);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("buckets: tensors in runtime form replay, too", Executor, replay_runtime) {
  for (const update_mode mode : {update_mode::direct, update_mode::swap}) {
    CAPTURE(name_of(mode));
    bucket_run<Executor> run(mode);
    run.left_out = {"mlp.gate.input_scale", "mlp.up.input_scale"};
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto all = run.with_runtime(run.checkpoint(i));
      run.must_update(all);
      run.demand_bytes(all);
      CHECK((run.open.report().replayed_buckets > 0) == (i > 0));
    }
    must(run.start());  // a replay that ends without success
    must(run.send(run.with_runtime(run.checkpoint(3))));
    must(run.open.abort());
    const status without = run.update_once(run.checkpoint(1));
    CHECK_MESSAGE(without.code == (mode == update_mode::direct ? error_code::incomplete : error_code::ok), without.message());
    must(run.open.abort());
    const auto all = run.with_runtime(run.checkpoint(2));
    run.must_update(all);
    run.demand_bytes(all);
  }
}

TEST_CASE_TEMPLATE_DEFINE("buckets: a plan serves a live model, and no other", Executor, replay_dropped) {
  const auto names = mixed_engine<Executor>::kept_names();
  for (const update_mode mode : {update_mode::direct, update_mode::swap}) {
    CAPTURE(name_of(mode));
    bucket_run<Executor> run(mode);
    const auto with_plan = [&](std::uint64_t first) {
      run.left_out.clear();
      run.must_update(run.checkpoint(first));
      run.left_out = names;
      run.must_update(run.checkpoint(first));
      run.must_update(run.checkpoint(first));
      run.demand_replayed(true);
    };
    with_plan(0);
    if (mode == update_mode::direct) {
      for (const bool follows : {false, true}) {  // torn: kept values were written by a failed update
        run.left_out.clear();
        if (follows) run.must_update(run.checkpoint(0));
        if (follows) run.must_update(run.checkpoint(0));
        must(run.start());
        must(run.send(run.checkpoint(1)));
        run.demand_replayed(follows);
        must(run.open.abort());
        CHECK(run.engine->model().state() == model_state::undefined);
        run.left_out = names;
        check_refused(run.update_once(run.checkpoint(2)), error_code::incomplete);
        run.demand_replayed(false);
        must(run.open.abort());
        with_plan(1);
      }
    } else {
      must(run.engine->model().rollback());
      run.left_out = names;
      run.must_update(run.checkpoint(2));
      auto logical = run.checkpoint(2);
      for (const std::string& name : names) logical[name] = run.checkpoint(0).at(name);
      run.demand_bytes(logical);
      run.demand_replayed(true);
    }
    with_plan(1);
    must(run.engine->model().sleep());
    must(run.engine->model().wake());
    run.engine->poison_gaps();
    run.must_update(run.checkpoint(2));  // the kept values were saved, and an undefined model follows no plan
    run.demand_replayed(false);
    run.must_update(run.checkpoint(3));
    run.demand_replayed(true);
  }
  // Two names of the same bytes are compared, in an order: never replayed.
  bucket_run<Executor> run(update_mode::direct);
  auto all = run.checkpoint(1);
  all["lm_head.weight"] = all.at("embed.weight");
  for (int i = 0; i < 3; ++i) {
    run.must_update(all);
    run.demand_bytes(all);
    run.demand_replayed(false);
  }
}

TEST_CASE_TEMPLATE_DEFINE("buckets: every operation of a recorded, a replayed and a left update fails once", Executor, replay_injected) {
  std::set<std::string> kinds;
  for (const update_mode mode : {update_mode::direct, update_mode::swap})
    for (int kind = 0; kind < 3; ++kind) {  // recorded, replayed, left
      bucket_run<Executor> run(mode);
      auto old = run.checkpoint(0);
      run.must_update(old);
      std::uint64_t seed = 0;
      const std::string what = std::string(name_of(mode)) + (kind == 0 ? ", recorded" : kind == 1 ? ", replayed" : ", left");
      for_each_failure<Executor>(what, [&](std::int64_t n) {
        if (kind == 0) {  // another cut: nothing matches the plan
          run.left_out = run.left_out.empty() ? std::set<std::string>{"mlp.up.input_scale"} : std::set<std::string>{};
        }
        auto next = run.checkpoint(++seed);
        const auto before = run.engine->image();
        run.engine->plan.arm(n);
        const status result = run.update_once(next, kind == 2 ? sending::some_as_pieces : sending::all_buckets);
        const bool hit = run.engine->plan.disarm();
        const std::string where = run.engine->plan.hit() + " failed, " + result.message() + "; ";
        demand(hit != result.ok(), where + "and nobody says so");
        for (const std::string& name : run.left_out) next[name] = old.at(name);
        if (!hit) {
          run.demand_bytes(next);
          return false;
        }
        kinds.insert(run.engine->plan.hit());
        demand(result.is_final(), where + "no execution error");
        if (run.open.is_open()) demand(run.open.finish().code == result.code, where + "not sticky");
        must(run.open.abort());
        const model_state state = run.engine->model().state();
        demand(state == model_state::live || (mode == update_mode::direct && state == model_state::undefined && result.wrote_anything),
               where + std::string(name_of(state)));
        if (state == model_state::live) demand(run.engine->image() == before, where + "live, and bytes have changed");
        run.left_out.clear();
        old = run.checkpoint(++seed);  // repairs, and makes a plan where there is none
        run.must_update(old);
        run.demand_bytes(old);
        old = run.checkpoint(++seed);
        run.must_update(old);
        run.demand_bytes(old);
        run.demand_replayed(true);
        return true;
      });
    }
  if (!fails_all<Executor>()) return;
  for (const char* kind : {"replay", "land", "dequantise", "combine", "launch", "join", "wait", "wait_for", "exchange"})
    CHECK_MESSAGE(kinds.contains(kind), "no " << kind << " has failed");
}

}  // namespace wreload::test
