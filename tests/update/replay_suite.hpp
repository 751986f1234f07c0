#pragma once
/// Buckets that come again: an update that replays a plan is an update like any other, until its end and at any difference.

#include "../property.hpp"
#include "bucket_delivery.hpp"

namespace wreload::test {

/// Loads a bucket whose block lies as the recorded ones do.
template <class Executor, class To>
status load_bucket(engine<Executor>& tested, To& to, const test_bucket& each, const reference::checkpoint& all,
                   std::int64_t misalignment = 0) {
  const placed_bucket<Executor> placed(tested.memory(), each, all, misalignment);
  return to.load(placed.get());
}

/// A complete update by buckets; returns its report.
template <class Executor>
report update_by_buckets(engine<Executor>& tested, const std::vector<test_bucket>& all, const reference::checkpoint& bytes,
                         bool on_lanes) {
  update<Executor> open = tested.start();
  auto first = open.lane(tested.memory().stream(1)), second = open.lane(tested.memory().stream(2));
  for (const std::size_t i : draw_order(all.size())) {
    const std::int64_t lane = on_lanes ? draw(0, 2) : 0;
    must(lane == 0   ? load_bucket(tested, open, all[i], bytes)
         : lane == 1 ? load_bucket(tested, first, all[i], bytes)
                     : load_bucket(tested, second, all[i], bytes));
  }
  must(open.finish());
  tested.memory().drop_sources();
  return open.report();
}

/// The same in the ordinary way.
template <class Executor>
report update_by_pieces(engine<Executor>& tested, const std::vector<test_bucket>& all, const reference::checkpoint& bytes) {
  update<Executor> open = tested.start();
  for (const test_bucket& each : all) {
    const placed_bucket<Executor> placed(tested.memory(), each, bytes, 0);
    must(open.load(placed.pieces()));
  }
  must(open.finish());
  tested.memory().drop_sources();
  return open.report();
}

inline void demand_told(const report& found, const report& expected) {
  demand(told_by(found) == told_by(expected), "reports differ: " + told_by(found) + "\nand " + told_by(expected));
}
inline void demand_replayed(const report& found, std::size_t buckets) {
  const std::size_t expected = makes_plans() ? buckets : 0;
  demand(found.replayed_buckets == static_cast<std::int64_t>(expected),
         std::to_string(found.replayed_buckets) + " buckets were replayed instead of " + std::to_string(expected));
}

TEST_CASE_TEMPLATE_DEFINE("law 1: buckets that come again, in any order and on any lane", Executor, replay_cold_equal) {
  property("A, B and A by buckets equal a cold start, and report what ordinary updates do", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 2));
    engine<Executor> ordinary(layers);
    const auto a = random_checkpoint(layers, draw_seed(), static_cast<stored_as>(draw(0, 2)));
    const auto b = other_bytes(a, draw_seed());
    const auto buckets = draw_buckets(draw_delivery(a), draw_small(1, 6));
    const report recorded = update_by_buckets(tested, buckets, a, one_in(2));
    tested.demand_cold(a);
    demand_replayed(recorded, 0);
    const auto first = tested.image();
    for (const auto* bytes : {&b, &a}) {
      if (one_in(3)) {  // what comes between does not matter
        const auto some = draw_subset(*bytes);
        if (one_in(2)) tested.reload_partial(some);
      }
      const std::int64_t lands = tested.model().executor().lands;
      const report done = update_by_buckets(tested, buckets, *bytes, true);
      tested.demand_cold(*bytes);
      demand_replayed(done, buckets.size());
      if (mode_under_test() == update_mode::direct) demand(tested.model().executor().lands == lands, "a replay landed something anew");
      if (makes_plans()) demand(done.fused_rows == recorded.fused_rows, "other rows were converted on their way");
      demand_told(done, recorded);
      demand_told(done, update_by_pieces(ordinary, buckets, *bytes));
    }
    const auto again = tested.image();
    for (std::size_t t = 0; t < first.size(); ++t)
      if (!tested.tensors()[t].plan.retired) demand(first[t] == again[t], "A after B differs from A");
    demand(tested.model().state() == model_state::live, "live");
  });
}

/// What happens in the middle of an update that follows a plan.
enum class difference { pieces, retracted, another_cut, twice, too_early, more_bytes, misaligned, moved_base, fails, aborted };
constexpr std::int64_t differences = 10;

TEST_CASE_TEMPLATE_DEFINE("buckets: any difference in the middle of a replay", Executor, replay_differences) {
  property("the update goes on as an ordinary one", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 1)), ordinary(layers);
    const auto a = random_checkpoint(layers, draw_seed(), static_cast<stored_as>(draw(0, 2)));
    const auto b = other_bytes(a, draw_seed());
    auto buckets = draw_buckets(draw_delivery(a), draw_small(1, 6));
    (void)update_by_buckets(tested, buckets, a, false);
    const auto image = tested.image();
    const auto order = draw_order(buckets.size());
    const auto come = static_cast<std::size_t>(draw(1, static_cast<std::int64_t>(buckets.size())));
    const auto what = static_cast<difference>(draw(0, differences - 1));
    RC_LOG() << come << " of " << buckets.size() << " buckets, difference " << static_cast<int>(what);
    auto& run = tested.model().executor();

    update<Executor> open = tested.start();
    for (std::size_t i = 0; i < come; ++i) must(load_bucket(tested, open, buckets[order[i]], b));
    demand_replayed(open.report(), come);
    std::size_t next = come;
    const auto send_rest = [&](std::int64_t misalignment) {
      for (; next < order.size(); ++next) must(load_bucket(tested, open, buckets[order[next]], b, misalignment));
    };
    bool counts_alike = true;
    bool rebuilt = false;  // what is sent next time follows a plan
    switch (what) {
      case difference::pieces:
        for (; next < order.size(); ++next)
          must(open.load(placed_bucket<Executor>(tested.memory(), buckets[order[next]], b, 0).pieces()));
        break;
      case difference::retracted: {
        counts_alike = false;  // it counts again
        std::string name = b.begin()->first;
        must(open.retract(name));
        send_rest(0);
        if (name.ends_with("_scale_inv")) name.resize(name.size() - 10);
        const bool has_scale = b.contains(name + "_scale_inv");  // each goes with the other where they were converted
        must(open.retract(name));
        if (has_scale) must(open.retract(name + "_scale_inv"));
        must(tested.send(open, b, name));
        if (has_scale) must(tested.send(open, b, name + "_scale_inv"));
        break;
      }
      case difference::another_cut: {
        test_bucket rest;
        for (; next < order.size(); ++next)
          for (const parcel& each : buckets[order[next]].parcels) rest.add(each, 16);
        rest.manifest = buckets[0].manifest == 0 ? 0 : 1'000'000;
        if (rest.parcels.empty()) break;
        must(load_bucket(tested, open, rest, b));
        std::vector<test_bucket> cut_anew;
        for (std::size_t i = 0; i < come; ++i) cut_anew.push_back(buckets[order[i]]);
        cut_anew.push_back(rest);
        buckets = cut_anew;
        rebuilt = true;
        break;
      }
      case difference::twice: {
        const status again = load_bucket(tested, open, buckets[order[0]], b);
        const status ordinarily = [&] {
          update<Executor> beside = ordinary.start();
          for (int i = 0;; ++i) {
            const placed_bucket<Executor> placed(ordinary.memory(), buckets[order[0]], b, 0);
            const status result = beside.load(placed.pieces());
            if (i == 1) return result;
            must(result);
          }
        }();
        demand(again.message() == ordinarily.message(), "'" + again.message() + "', and in the ordinary way '" + ordinarily.message() + "'");
        demand(open.report().first_error.message() == again.message(), "the first error");
        counts_alike = !again.ok();  // nothing of it is needed: it may come again, and counts again
        send_rest(0);
        rebuilt = again.code == error_code::duplicate;
        break;
      }
      case difference::too_early: {
        update<Executor> beside = ordinary.start();
        for (std::size_t i = 0; i < come; ++i)
          must(beside.load(placed_bucket<Executor>(ordinary.memory(), buckets[order[i]], b, 0).pieces()));
        const status early = open.prepare(), ordinarily = beside.prepare();
        demand(early.message() == ordinarily.message() && open.report().missing == beside.report().missing,
               "'" + early.message() + "', and in the ordinary way '" + ordinarily.message() + "'");
        demand_told(open.report(), beside.report());
        counts_alike = !early.ok() || next == order.size();
        if (early.ok()) break;  // what has not come is not needed
        send_rest(0);
        rebuilt = true;
        break;
      }
      case difference::more_bytes:
        for (std::size_t i = next; i < order.size(); ++i) buckets[order[i]].bytes += 16;
        rebuilt = true;
        send_rest(0);
        break;
      case difference::misaligned: {
        send_rest(draw(1, 15));
        break;
      }
      case difference::moved_base: {  // the same pieces, which point into the block
        for (; next < order.size(); ++next) {
          const placed_bucket<Executor> placed(tested.memory(), buckets[order[next]], b, 0);
          const auto pieces = placed.pieces();
          bucket direct = placed.get();
          direct.pieces = pieces;
          direct.base = nullptr;
          must(open.load(direct));
        }
        demand_replayed(open.report(), buckets.size());
        rebuilt = true;
        break;
      }
      case difference::fails: {
        if (!makes_plans()) return;
        run.replays_left = 0;
        status failed;
        for (; failed.ok() && next < order.size(); ++next) failed = load_bucket(tested, open, buckets[order[next]], b);
        if (failed.ok()) failed = open.finish();
        const bool hit = run.replays_left < 0;
        run.replays_left = -1;
        if (!hit) {  // nothing was left to write
          must(failed);
          return;
        }
        demand(failed.code == error_code::execution_failed, "a failed replay, but " + failed.message());
        demand(open.finish().code == failed.code, "the error is sticky");
        must(open.abort());
        break;
      }
      case difference::aborted: must(open.abort()); break;
    }
    if (what == difference::more_bytes || what == difference::misaligned)
      demand_replayed(open.report(), come);
    if (open.is_open()) {
      must(open.finish());
      tested.demand_cold(b);
      if (counts_alike) demand_told(open.report(), update_by_pieces(ordinary, buckets, b));
    } else if (what == difference::aborted || what == difference::fails) {
      const model_state state = tested.model().state();
      demand(state == model_state::undefined || tested.image() == image, "live, and not as before");
      demand(mode_under_test() != update_mode::swap || state == model_state::live, "swap: as before");
    }
    open = {};
    tested.memory().drop_sources();
    if (!makes_plans()) return;
    const report next_time = update_by_buckets(tested, buckets, a, true);
    tested.demand_cold(a);
    if (rebuilt) demand_replayed(next_time, buckets.size());
    demand_replayed(update_by_buckets(tested, buckets, b, true), buckets.size());
    tested.demand_cold(b);
  });
}

TEST_CASE_TEMPLATE_DEFINE("buckets: what was converted on its way is not converted again, and needs no other bucket", Executor, replay_fused) {
  if (!makes_plans()) return;
  engine<Executor> tested({linear("w", 4, 16), plain("norm.weight", {7})});
  const auto a = random_checkpoint(tested.layers(), 1), b = other_bytes(a, 2);
  for (const bool apart : {false, true}) {  // the scale in an earlier bucket
    std::vector<test_bucket> buckets(apart ? 3 : 2);
    buckets[0].add(whole_parcel("w.weight_scale_inv", a.at("w.weight_scale_inv")), 16);
    buckets[apart ? 1 : 0].add(whole_parcel("w.weight", a.at("w.weight")), 16);
    buckets.back().add(whole_parcel("norm.weight", a.at("norm.weight")), 16);
    const auto update_to = [&](const reference::checkpoint& all, bool backwards, bool leaves) {
      update<Executor> open = tested.start();
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        const placed_bucket<Executor> placed(tested.memory(), buckets[backwards ? buckets.size() - 1 - i : i], all, 0);
        must(leaves && i + 1 == buckets.size() ? open.load(placed.pieces()) : open.load(placed.get()));
      }
      must(open.finish());
      tested.demand_cold(all);
      CHECK(open.report().fused_rows == (apart ? 0 : 4));
      CHECK(open.report().converted_rows == 4);
      tested.memory().drop_sources();
      return open.report().replayed_buckets;
    };
    CHECK(update_to(a, false, false) == 0);
    CHECK(update_to(b, true, false) == static_cast<std::int64_t>(buckets.size()));
    CHECK(update_to(a, false, true) == static_cast<std::int64_t>(buckets.size()) - 1);
    CHECK(update_to(b, false, false) == static_cast<std::int64_t>(buckets.size()));
  }
}

TEST_CASE_TEMPLATE_DEFINE("buckets: what no table can name leaves the plan that there is", Executor, replay_pageable) {
  if (!makes_plans()) return;
  engine<Executor> tested({linear("w", 4, 16), plain("norm.weight", {7}), plain("bias", {48})});
  const auto a = random_checkpoint(tested.layers(), 1);
  std::vector<test_bucket> buckets(3);
  buckets[0].add(whole_parcel("w.weight_scale_inv", a.at("w.weight_scale_inv")), 16);
  buckets[0].add(whole_parcel("w.weight", a.at("w.weight")), 16);
  buckets[1].add(whole_parcel("norm.weight", a.at("norm.weight")), 16);
  buckets[2].add(whole_parcel("bias", a.at("bias")), 16);
  /// Buckets from `first_pageable` on have manifests of their own, and come from pageable memory.
  const auto update_to = [&](std::uint64_t seed, std::size_t first_pageable) {
    const auto all = other_bytes(a, seed);
    update<Executor> open = tested.start();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      buckets[i].manifest = 1 + i + (i < first_pageable ? 0 : 10);
      placed_bucket<Executor> placed(tested.memory(), buckets[i], all, 0);
      if (i >= first_pageable) placed.mark(memory_kind::pageable);
      must(open.load(placed.get()));
    }
    must(open.finish());
    tested.demand_cold(all);
    tested.memory().drop_sources();
    return open.report().replayed_buckets;
  };
  CHECK(update_to(2, 0) == 0);  // no plan before, and none after
  CHECK(update_to(3, 0) == 0);
  CHECK(update_to(4, 3) == 0);
  CHECK(update_to(5, 3) == 3);
  for (const std::size_t first_pageable : {0, 1, 2}) {
    CHECK(update_to(6, first_pageable) == static_cast<std::int64_t>(first_pageable));
    CHECK(update_to(7, 3) == 3);
  }
}

TEST_CASE_TEMPLATE_DEFINE("buckets: law 6: what a bucket has brought comes once, by whatever way", Executor, replay_once) {
  engine<Executor> tested({plain("a", {64}), plain("b", {48})});
  const auto all = random_checkpoint(tested.layers(), 1);
  test_bucket both, again;
  both.manifest = 6;
  again.manifest = 7;
  for (const char* name : {"a", "b"}) both.add(whole_parcel(name, all.at(name)), 16);
  again.add(whole_parcel("a", all.at("a")), 16);
  const placed_bucket<Executor> first(tested.memory(), both, all, 0), second(tested.memory(), again, all, 0);
  {
    update<Executor> open = tested.start();
    must(open.load(first.get()));
    must(open.retract("a"));
    must(open.load(second.get()));
    must(open.finish());
  }
  for (int i = 0; i < 3; ++i) {  // what was retracted made no plan; then one is made, then one is followed
    update<Executor> open = tested.start();
    must(open.load(first.get()));
    direct_landing where;
    if (i > 0) check_refused(open.landing("a", {}, all.at("a").type, &where), error_code::duplicate, "a");
    check_refused(open.load(second.get()), error_code::duplicate, "a");
    must(open.finish());
    tested.demand_cold(all);
  }
}

TEST_CASE_TEMPLATE_DEFINE("buckets: what lies outside the block is refused", Executor, replay_outside) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  const auto image = tested.image();
  test_bucket one;
  one.add(whole_parcel("norm.weight", all.at("norm.weight")), 16);
  one.add(whole_parcel("q.weight", all.at("q.weight")), 16);
  update<Executor> open = tested.start();
  const placed_bucket<Executor> placed(tested.memory(), one, all, 0);
  const auto refused_with = [&](auto&& change) {
    std::vector<piece> pieces(placed.get().pieces.begin(), placed.get().pieces.end());
    bucket changed = placed.get();
    changed.pieces = pieces;
    change(changed, pieces);
    return open.load(changed);
  };
  const auto at_byte = [](std::int64_t byte) {
    return reinterpret_cast<const void*>(bucket_base + static_cast<std::uintptr_t>(byte));
  };
  check_refused(refused_with([](bucket& of, auto&) { of.bytes -= 1; }), error_code::bad_argument, "q.weight");
  check_refused(refused_with([&](bucket&, auto& pieces) { pieces[1].tensor.data = at_byte(-1); }), error_code::bad_argument, "q.weight");
  check_refused(refused_with([&](bucket&, auto& pieces) { pieces[0].tensor.data = at_byte(one.bytes - 13); }), error_code::bad_argument, "norm.weight");
  check_refused(refused_with([&](bucket&, auto& pieces) { pieces[1].tensor.strides = {8, 1}; }), error_code::bad_argument, "q.weight");
  check_refused(refused_with([&](bucket&, auto& pieces) { pieces[1].tensor.strides = {-7, 1}; }), error_code::bad_argument, "q.weight");
  check_refused(refused_with([&](bucket&, auto& pieces) { pieces[1].tensor.strides = {std::int64_t{1} << 62, 1}; }), error_code::bad_argument, "q.weight");
  check_refused(refused_with([](bucket& of, auto&) { of.data = nullptr; }), error_code::bad_argument, "norm.weight");
  check_refused(refused_with([](bucket&, auto& pieces) { pieces[1].tensor.data = nullptr; }), error_code::bad_argument, "q.weight");
  CHECK(tested.image() == image);
  must(open.load(placed.get()));
  check_refused(open.finish(), error_code::incomplete);
}

TEST_CASE_TEMPLATE_DEFINE("buckets: a manifest stands for all but the block", Executor, replay_manifest) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  test_bucket one;
  for (const char* name : {"norm.weight", "q.weight", "bias"}) one.add(whole_parcel(name, all.at(name)), 16);
  const placed_bucket<Executor> placed(tested.memory(), one, all, 0), elsewhere(tested.memory(), one, all, 5);
  const std::uint64_t manifest = manifest_of(placed.get());
  const auto memory = placed.get().pieces[0].tensor.memory;
  CHECK(manifest != 0);
  if (elsewhere.get().pieces[0].tensor.memory == memory) CHECK(manifest_of(elsewhere.get()) == manifest);
  std::vector<std::uint64_t> others;
  const auto differs = [&](auto&& change) {
    std::vector<piece> pieces(placed.get().pieces.begin(), placed.get().pieces.end());
    bucket changed = placed.get();
    changed.pieces = pieces;
    change(changed, pieces);
    others.push_back(manifest_of(changed));
  };
  differs([](bucket& of, auto&) { of.bytes += 1; });
  differs([](bucket& of, auto&) { of.pieces = of.pieces.first(2); });
  differs([](bucket&, auto& pieces) { std::swap(pieces[0], pieces[1]); });
  for (std::size_t i = 0; i < 3; ++i) {
    differs([&](bucket&, auto& pieces) { pieces[i].name = "norm.weighu"; });
    differs([&](bucket&, auto& pieces) { pieces[i].name = pieces[i].name.substr(1); });
    differs([&](bucket&, auto& pieces) { pieces[i].id = {3}; });
    differs([&](bucket&, auto& pieces) { pieces[i].form = load_form::runtime; });
    differs([&](bucket&, auto& pieces) { pieces[i].tensor.type = dtype::u8; });
    differs([&](bucket&, auto& pieces) { pieces[i].tensor.memory = memory_kind::pinned; });
    differs([&](bucket&, auto& pieces) { pieces[i].tensor.data = static_cast<const std::byte*>(pieces[i].tensor.data) + 1; });
    differs([&](bucket&, auto& pieces) { pieces[i].tensor.extents[0] += 1; });
    differs([&](bucket&, auto& pieces) { pieces[i].tensor.strides = {9, 1}; });
    differs([&](bucket&, auto& pieces) { pieces[i].part = {{0, 0}, {1, 1}}; });
    differs([&](bucket&, auto& pieces) { pieces[i].part = {{0, 1}, {1, 1}}; });
    differs([&](bucket&, auto& pieces) { pieces[i].part = {{0, 0}, {1, 2}}; });
  }
  const std::string text = "a name of some length, with no byte left out: 0123456789abcdef";
  for (std::size_t size = 0; size <= text.size(); ++size)
    for (std::size_t i = 0; i <= size; ++i) {  // each byte, and none
      std::string name = text.substr(0, size);
      if (i < size) ++name[i];
      differs([&](bucket&, auto& pieces) { pieces[1].name = name; });
    }
  for (const int dim : {0, 1, 2, 3, 4})
    differs([&](bucket&, auto& pieces) { (pieces[1].tensor.extents = {3, 5, 7, 9, 11})[dim] += 1; });
  differs([&](bucket&, auto& pieces) { pieces[1].tensor.data = nullptr; });
  std::sort(others.begin(), others.end());
  CHECK(std::adjacent_find(others.begin(), others.end()) == others.end());
  CHECK(std::find(others.begin(), others.end(), manifest) == others.end());
}

}  // namespace wreload::test
