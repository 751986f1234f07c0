#pragma once
/// Lanes: several threads load into one update. Meant for -fsanitize=thread too.

#include <atomic>
#include <chrono>
#include <thread>

#include "../property.hpp"
#include "failing_executor.hpp"
#include "generators.hpp"
#include "twins_suite.hpp"

namespace wreload::test {

/// Runs `work(lane, index)` on `count` threads, each with a lane of its own; returns their first errors.
template <class Executor, class Work>
std::vector<status> on_lanes(engine<Executor>& tested, update<Executor>& open, int count, Work&& work) {
  std::vector<status> results(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  std::atomic<int> ready = 0;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      auto lane = open.lane(tested.memory().stream(t));
      ++ready;
      while (ready.load() < count) std::this_thread::yield();
      results[static_cast<std::size_t>(t)] = work(lane, t);
    });
  for (std::thread& each : threads) each.join();
  return results;
}

TEST_CASE_TEMPLATE_DEFINE("four threads loading: disjoint pieces in any cut", Executor, lanes_disjoint) {
  property("equal a cold start", [] {
    const std::vector<reference::layer> layers = draw_model();
    engine<Executor> tested(layers, draw_small(0, 1));
    for (int round = 0; round < 2; ++round) {
      const auto all = random_checkpoint(layers, draw_seed(), stored_as::mixed);
      const std::vector<parcel> delivery = draw_delivery(all);
      update<Executor> open = tested.start();
      const auto results = on_lanes(tested, open, 4, [&](auto& lane, int t) {
        for (std::size_t i = static_cast<std::size_t>(t); i < delivery.size(); i += 4) {
          const parcel& each = delivery[i];
          const placed_source at =
              tested.memory().place(each.bytes.data(), static_cast<std::int64_t>(each.bytes.size()));
          const status refused =
              lane.load(each.name, {at.data, each.type, each.extents, each.strides, at.memory}, each.part);
          if (!refused.ok()) return refused;
          (void)lane.flush();
        }
        return status{};
      });
      for (const status& each : results) must(each);
      must(open.finish());
      tested.demand_cold(all);
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("four threads that all send everything: each byte once", Executor, lanes_race) {
  engine<Executor> tested(small_model(), 1);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const auto all = random_checkpoint(tested.layers(), round, stored_as::mixed);
    update<Executor> open = tested.start();
    std::atomic<int> accepted = 0, refused = 0;
    const auto results = on_lanes(tested, open, 4, [&](auto& lane, int) {
      for (const auto& [name, value] : all) {
        const status result = lane.load(name, tested.place(value));
        if (result.ok())
          ++accepted;
        else if (result.code == error_code::duplicate)
          ++refused;
        else
          return result;
      }
      return status{};
    });
    for (const status& each : results) must(each);
    CHECK(accepted == static_cast<int>(all.size()));
    CHECK(refused == 3 * static_cast<int>(all.size()));
    must(open.finish());
    CHECK(open.report().loaded.tensors == static_cast<std::int64_t>(all.size()));
    tested.demand_cold(all);
  }
}

TEST_CASE_TEMPLATE_DEFINE("threads send the two names of one tensor: equal ones agree, different ones conflict",
                          Executor, lanes_twins) {
  engine<Executor> tested = tied_engine<Executor>();
  for (std::uint64_t round = 0; round < 20; ++round) {
    const auto all = random_checkpoint(tested.layers(), round);
    auto other = all;
    if (round % 2 == 1) other["embed.weight"].bytes[7] ^= std::byte{4};
    update<Executor> open = tested.start();
    const auto results = on_lanes(tested, open, 4, [&](auto& lane, int t) {
      for (const auto& [name, value] : t % 2 == 0 ? all : other) {
        const std::string second = second_name(name);
        if (second == name && t != 0) continue;
        // Threads 0 and 1 send the upper rows, 2 and 3 the lower ones; even threads the first name, odd ones the second.
        const auto half = static_cast<std::int64_t>(value.sizes[0]) / 2;
        if (second == name) {
          if (status refused = lane.load(name, tested.place(value)); !refused.ok()) return refused;
          continue;
        }
        const std::int64_t cols = value.sizes[1];
        const shape offset{t < 2 ? 0 : half, 0}, size{t < 2 ? half : value.sizes[0] - half, cols};
        const parcel part = pack(name, value, offset, size, 0);
        const status refused =
            lane.load(t % 2 == 0 ? name : second, tested.place({part.type, {size[0], size[1]}, part.bytes}), part.part);
        if (!refused.ok()) return refused;
      }
      return status{};
    });
    for (const status& each : results) must(each);
    if (round % 2 == 0) {
      must(open.finish());
      tested.demand_cold(all);
    } else {
      check_refused(open.finish(), error_code::conflict, "embed.weight");
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("an abort while four threads load: nothing is written after it", Executor, lanes_abort) {
  std::vector<reference::layer> layers;
  for (int i = 0; i < 40; ++i) layers.push_back(plain("t" + std::to_string(i), {64, 64}));
  engine<Executor> tested(layers);
  const auto a = random_checkpoint(tested.layers(), 1);
  for (int round = 0; round < 20; ++round) {
    update<Executor> open = tested.start();
    std::atomic<bool> aborted = false;
    std::vector<std::vector<std::byte>> after;
    const auto results = on_lanes(tested, open, 5, [&](auto& lane, int t) {
      if (t == 4) {
        for (int i = 0; i < round; ++i) std::this_thread::yield();
        const status result = open.abort();
        after = tested.image();
        aborted = true;
        return result;
      }
      for (int i = t; i < 40; i += 4) {
        const status result = tested.send(lane, a, "t" + std::to_string(i));
        if (result.code == error_code::aborted) return status{};
        if (!result.ok()) return result;
      }
      return status{};
    });
    for (const status& each : results) must(each);
    CHECK(aborted);
    CHECK(after == tested.image());
    CHECK(tested.model().version() == round);
    tested.reload(a);
    tested.demand_cold(a);
  }
}

TEST_CASE_TEMPLATE_DEFINE("finish asked while threads still load is refused or complete, never torn", Executor,
                          lanes_finish) {
  std::vector<reference::layer> layers;
  for (int i = 0; i < 40; ++i) layers.push_back(plain("t" + std::to_string(i), {32, 64}));
  engine<Executor> tested(layers);
  for (std::uint64_t round = 0; round < 10; ++round) {
    const auto a = random_checkpoint(tested.layers(), round);
    update<Executor> open = tested.start();
    std::atomic<int> refusals = 0;
    const auto results = on_lanes(tested, open, 5, [&](auto& lane, int t) {
      if (t == 4) {
        for (;;) {
          const status result = open.prepare();
          if (result.ok()) return result;
          if (result.code != error_code::incomplete && result.code != error_code::wrong_state) return result;
          ++refusals;
          std::this_thread::yield();
        }
      }
      for (int i = t; i < 40; i += 4)
        if (status result = tested.send(lane, a, "t" + std::to_string(i)); !result.ok()) return result;
      return status{};
    });
    for (const status& each : results) must(each);
    must(open.finish());
    tested.demand_cold(a);
  }
}

/// Runs with gated_executor<Executor>.
TEST_CASE_TEMPLATE_DEFINE("abort waits for a landing that runs; prepare and retract are refused beside it", Executor,
                          lanes_gate) {
  using gated = gated_executor<Executor>;
  engine<gated> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  gated& run = tested.model().executor();
  update<gated> open = tested.start();
  run.closed = true;
  status loaded;
  std::thread loader([&] {
    auto lane = open.lane(tested.memory().stream(1));
    loaded = tested.send(lane, b, "q.weight");
  });
  while (run.waiting == 0) std::this_thread::yield();
  check_refused(open.prepare(), error_code::wrong_state);
  check_refused(open.retract("q.weight"), error_code::wrong_state);
  std::atomic<bool> aborted = false;
  std::vector<std::vector<std::byte>> after;
  std::thread aborter([&] {
    (void)open.abort();
    after = tested.image();
    aborted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  CHECK(!aborted);
  run.let_pass();
  loader.join();
  aborter.join();
  CHECK(loaded.ok());
  CHECK(after == tested.image());
  CHECK(tested.model().state() == model_state::undefined);
  tested.reload(b);
  tested.demand_cold(b);
}

}  // namespace wreload::test
