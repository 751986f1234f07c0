// Buckets that come again, on the device: the suites of tests/update.
#include "../update/replay_suite.hpp"
#include "../update/replay_mixed_suite.hpp"
#include "../executor/table_suite.hpp"
#include "kernels.cuh"
#include "plan_room.cuh"
#include "test_device.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(table_replay, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_cold_equal, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_differences, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_fused, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_pageable, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_once, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_outside, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_manifest, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_mixed, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_injected, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_runtime, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_dropped, cuda_executor);

/// 120 vectors, and a bucket of them all: more tasks than a launch's parameter takes.
std::vector<reference::layer> many_vectors() {
  std::vector<reference::layer> layers;
  for (int i = 0; i < 120; ++i) layers.push_back(plain("vector." + std::to_string(i), {5 + i}));
  return layers;
}
test_bucket one_bucket(const reference::checkpoint& all) {
  test_bucket made;
  for (const auto& [name, value] : all) made.add(whole_parcel(name, value), 16);
  return made;
}

TEST_CASE("cuda: tables of a cancelled update that are still to be copied spoil no later plan") {
  engine<cuda_planning> tested(many_vectors());
  const auto a = random_checkpoint(tested.layers(), 1), b = other_bytes(a, 2), c = other_bytes(a, 3);
  const auto backwards = [](const reference::checkpoint& all) {  // other tasks
    test_bucket made;
    for (auto each = all.rbegin(); each != all.rend(); ++each) made.add(whole_parcel(each->first, each->second), 16);
    return made;
  };
  auto& memory = tested.memory();  // everything is placed first: that waits for the device
  const placed_bucket<cuda_planning> first(memory, one_bucket(a), a, 0), next(memory, backwards(b), b, 0);
  const placed_bucket<cuda_planning> again(memory, backwards(c), c, 0);
  const stream_ref open_stream = memory.stream(1);
  held_stream held(memory.stream(0));
  {
    auto cancelled = tested.start({.stream = memory.stream(0)});
    must(cancelled.load(first.get()));
    must(cancelled.abort());
  }
  const auto update_to = [&](const placed_bucket<cuda_planning>& placed, const reference::checkpoint& all) {
    auto open = tested.start({.stream = open_stream});
    must(open.load(placed.get()));
    must(open.finish());
    CHECK(tested.difference(all) == "");
    return open.report().replayed_buckets;
  };
  CHECK(update_to(next, b) == 0);
  held.release_and_drain();
  CHECK(tested.difference(b) == "");
  CHECK(update_to(again, c) == 1);
  CHECK(update_to(next, b) == 1);
}

TEST_CASE("cuda: without room for plans, or with too little, buckets load in the usual way") {
  for (const std::int64_t plan_bytes : {std::int64_t{0}, std::int64_t{4096}}) {
    test_memory<cuda_executor> memory;
    wr::model<cuda_executor> model(cuda_options{.plan_bytes = plan_bytes});
    const auto layers = many_vectors();
    const auto a = random_checkpoint(layers, 1);
    std::vector<std::pair<std::string, std::byte*>> tensors;
    for (const auto& [name, value] : a) {
      tensors.emplace_back(name, memory.allocate(static_cast<std::int64_t>(value.bytes.size()), std::byte{0xA5}));
      must(model.add<Plain>(name, extents::tensor(name, shape_of(value.sizes), value.type), tensors.back().second));
    }
    must(model.seal());
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
      const auto all = other_bytes(a, seed);
      status refused;
      auto open = model.start({.stream = memory.stream(0)}, &refused);
      must(refused);
      const placed_bucket<cuda_executor> placed(memory, one_bucket(all), all, 0);
      must(open.load(placed.get()));
      must(open.finish());
      CHECK(open.report().replayed_buckets == 0);
      CHECK(open.report().peak_extra_device_bytes == 0);
      CHECK(model.executor().kept_bytes() == 0);
      for (const auto& [name, data] : tensors) {
        std::vector<std::byte> found(all.at(name).bytes.size());
        memory.read(found.data(), data, static_cast<std::int64_t>(found.size()));
        CHECK_MESSAGE(found == all.at(name).bytes, name);
      }
    }
  }
}

}  // namespace wreload::test
