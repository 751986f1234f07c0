// Feeds with pages that CUDA pins: every way from mapped files to the device.
#if __has_include(<nlohmann/json.hpp>)

#include <chrono>
#include <thread>

#include <wreload/source/feed_cuda.cuh>

#include "../property.hpp"
#include "../source/checkpoint_files.hpp"
#include "../update/generators.hpp"
#include "fp8_model.cuh"

namespace wreload::test {
namespace {

constexpr std::int64_t page = 4096;

/// Matrices in blocks of 128 x 128, a quarter of each, and a table.
std::vector<reference::layer> feed_model(reference::cut split) {
  std::vector<reference::layer> layers;
  for (const char* name : {"a", "b", "c"}) {
    layers.push_back(linear(name, {whole_shard(name, 1024, split)}, 512, 128, 128));
    layers.back().tp_size = split == reference::cut::whole ? 1 : 4;
    layers.back().tp_rank = split == reference::cut::whole ? 0 : 2;
  }
  layers.push_back(plain("table", {700, 130}));
  return layers;
}

/// Sends and finishes one complete update.
template <class Feed>
feed_report fed(engine<cuda_executor>& to, Feed& feed, const checkpoint_files& from, report* told_update = nullptr) {
  update<cuda_executor> open = to.start({.stream = to.memory().stream(1)});
  feed_report told;
  must(feed.send(to.model(), open, from.tensors(), &told));
  must(open.finish());
  if (told_update != nullptr) *told_update = open.report();
  return told;
}

}  // namespace

TEST_CASE("cuda feed: law 1: any model, window and way arrives as a cold start") {
  property("a CUDA feed loads a checkpoint", [] {
    const std::vector<reference::layer> layers = draw_model();
    const reference::checkpoint all = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    const checkpoint_files on_disk(all, static_cast<int>(draw_small(1, 3)), draw_seed());
    engine<cuda_executor> to(layers, draw_small(0, 3));
    feed_options options{.window_bytes = draw(1, 20) * page, .threads = static_cast<int>(draw_small(1, 4))};
    if (one_in(3)) options.most_registered_bytes = draw(1, 20) * page;
    options.registers = !one_in(4);
    options.keep_registered = one_in(3);
    options.ring_bytes = one_in(4) ? 0 : draw(6, 60) * page;
    const std::int64_t window = draw(6, 60) * page;
    if (draw_small(0, 1) == 1)
      options.device_window = {to.memory().allocate(window, std::byte{0}), static_cast<std::size_t>(window)};
    cuda_feed feed(options);
    for (int round = 0; round < (options.keep_registered ? 2 : 1); ++round) {
      const feed_report told = fed(to, feed, on_disk);
      to.demand_cold(all);
      demand(told.first_bytes + told.registered_bytes + told.ring_bytes + told.host_bytes == told.needed_bytes,
             "bytes that went no way");
    }
    feed.release();
  });
}

TEST_CASE("cuda feed: whole matrices are converted on their way, a rank's slices too, whichever way they come") {
  for (const auto split : {reference::cut::whole, reference::cut::column, reference::cut::row}) {
    const std::vector<reference::layer> layers = feed_model(split);
    const reference::checkpoint all = random_checkpoint(layers, 3);
    std::vector<named_tensor> tensors;
    engine<cuda_executor> to(layers);
    std::string folder = (std::filesystem::temp_directory_path() / "wreload-feed-XXXXXX").string();
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    for (const auto& [name, value] : all) {
      tensor_ref tensor{.data = value.bytes.data(), .type = value.type, .extents = shape_of(value.sizes)};
      tensors.push_back({name, tensor});
    }
    must(write_safetensors(folder + "/all.safetensors", tensors));  // aligned
    checkpoint opened;
    must(opened.open(folder));
    const std::int64_t bytes = 64 << 20;
    const std::span<std::byte> lent(to.memory().allocate(bytes, std::byte{0}), static_cast<std::size_t>(bytes));
    const std::int64_t rows = 3 * (split == reference::cut::column ? 256 : 1024);
    for (const bool registers : {true, false})
      for (const bool copies : {false, true}) {
        cuda_feed feed({.registers = registers, .device_window = copies ? lent : std::span<std::byte>()});
        update<cuda_executor> open = to.start({.stream = to.memory().stream(1)});
        feed_report told;
        must(feed.send(to.model(), open, opened.tensors(), &told));
        must(open.finish());
        to.demand_cold(all);
        MESSAGE("asked to register: " << registers << "; the way was: " << told.way()
                                      << "; read-only pages: " << feed.device().pins_read_only());
        CHECK(open.report().fused_rows == rows);
        CHECK(open.report().converted_rows == rows);
        CHECK(open.report().peak_extra_device_bytes == 0);
        CHECK((registers || told.way() == "ring"));
      }
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("cuda feed: law 9: 50 feeds leave free device memory flat, kept pages serve again") {
  const std::vector<reference::layer> layers = feed_model(reference::cut::whole);
  const reference::checkpoint a = random_checkpoint(layers, 4), b = random_checkpoint(layers, 5);
  const checkpoint_files on_disk_a(a, 2, 6), on_disk_b(b, 3, 7);
  engine<cuda_executor> to(layers);
  const std::int64_t bytes = 4 << 20;
  const std::span<std::byte> lent(to.memory().allocate(bytes, std::byte{0}), static_cast<std::size_t>(bytes));
  cuda_feed kept({.window_bytes = 64 * page, .keep_registered = true, .ring_bytes = bytes});
  cuda_feed copied({.window_bytes = 64 * page, .threads = 3, .registers = true, .ring_bytes = bytes, .device_window = lent});
  for (int warm = 0; warm < 2; ++warm) {
    (void)fed(to, kept, warm == 0 ? on_disk_a : on_disk_b);
    (void)fed(to, copied, warm == 0 ? on_disk_a : on_disk_b);
  }
  std::size_t free_before = 0, free_after = 0, total = 0;
  WRELOAD_TEST_CUDA(cudaMemGetInfo(&free_before, &total));
  for (int i = 0; i < 25; ++i) {
    const std::int64_t pinned = kept.kept_bytes();
    (void)fed(to, kept, i % 2 == 0 ? on_disk_a : on_disk_b);
    to.demand_cold(i % 2 == 0 ? a : b);
    CHECK(kept.kept_bytes() == pinned);
    (void)fed(to, copied, i % 2 == 1 ? on_disk_a : on_disk_b);
    to.demand_cold(i % 2 == 1 ? a : b);
    CHECK(copied.kept_bytes() == 0);
  }
  WRELOAD_TEST_CUDA(cudaMemGetInfo(&free_after, &total));
  CHECK(free_before == free_after);
  kept.release();
}

TEST_SUITE_BEGIN("held");

TEST_CASE("cuda feed: law 7: abort ends a feed whose lane waits for a reader, and nothing is written later") {
  const std::vector<reference::layer> layers = feed_model(reference::cut::whole);
  const reference::checkpoint a = random_checkpoint(layers, 8), b = random_checkpoint(layers, 9);
  const checkpoint_files on_disk_a(a, 1, 10), on_disk_b(b, 1, 11);
  engine<cuda_executor> to(layers);
  for (const bool registers : {true, false}) {
    cuda_feed feed({.window_bytes = 16 * page,
                    .threads = 2,
                    .registers = registers,
                    .ring_bytes = registers ? 0 : 100 * page,
                    .most_wait_seconds = 1});
    (void)fed(to, feed, on_disk_a);
    const stream_ref reader = to.memory().stream(2);
    held_stream reading(reader);
    update<cuda_executor> open = to.start({.stream = to.memory().stream(3), .readers = {&reader, 1}});
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      must(open.abort());
    });
    const auto begin = std::chrono::steady_clock::now();
    const status failed = feed.send(to.model(), open, on_disk_b.tensors());
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
    other.join();
    CHECK(failed.code == error_code::aborted);
    CHECK(to.difference(a).empty());
    reading.release_and_drain();
    CHECK(to.difference(a).empty());
    feed.release();
    CHECK(feed.kept_bytes() == 0);
    (void)fed(to, feed, on_disk_b);
    to.demand_cold(b);
  }
}

TEST_SUITE_END();

}  // namespace wreload::test

#endif
