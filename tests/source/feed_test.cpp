#include <wreload/source/feed.hpp>

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <wreload/update/model_ref.hpp>

#include "../property.hpp"
#include "../update/generators.hpp"
#include "checkpoint_files.hpp"
#include "late_pages.hpp"

namespace wreload::test {
namespace {

/// Needed bytes, from the reference: of each tensor the rows that any element comes from, over the columns that any
/// does.
std::int64_t bytes_needed(const std::vector<reference::layer>& layers, const reference::checkpoint& all) {
  struct need {
    std::set<std::int64_t> rows = {};
    std::int64_t first = 1 << 30, last = -1;
  };
  std::map<std::string, need> needs;
  for (const reference::layer& layer : layers)
    for (const reference::runtime_tensor& to : reference::runtime_of(layer))
      for (const reference::origin& from : to.elements) {
        if (from.source < 0) continue;
        need& of = needs[to.sources[static_cast<std::size_t>(from.source)]];
        of.rows.insert(from.row);
        of.first = std::min(of.first, from.col);
        of.last = std::max(of.last, from.col);
      }
  std::int64_t bytes = 0;
  for (const auto& [name, of] : needs) {
    const auto found = all.find(name);
    if (found == all.end()) continue;
    bytes += static_cast<std::int64_t>(of.rows.size()) * (of.last - of.first + 1) * bytes_of(found->second.type);
  }
  return bytes;
}

/// What a feed says while it works.
struct heard {
  std::vector<feed_progress> steps = {};
  void operator()(const feed_progress& step) { steps.push_back(step); }
  void check(const feed_report& told, std::size_t tensors) const {
    for (std::size_t i = 1; i < steps.size(); ++i) {
      demand(steps[i].bytes >= steps[i - 1].bytes && steps[i].tensors >= steps[i - 1].tensors, "progress went back");
      demand(steps[i].total_bytes == steps[0].total_bytes, "the total changed");
    }
    demand(static_cast<std::int64_t>(steps.size()) == told.loads, "not one step a load");
    if (tensors == 0) return;
    demand(steps.back().bytes == told.needed_bytes && steps.back().total_bytes == told.needed_bytes, "bytes are left");
    demand(steps.back().tensors == static_cast<std::int64_t>(tensors), "tensors are left");
    demand(steps.back().total_tensors == static_cast<std::int64_t>(tensors), "another number of tensors");
  }
};

/// What every plan must be.
void check_plan(const feed_plan& plan, std::int64_t window_bytes) {
  std::int64_t bytes = 0;
  std::size_t next_piece = 0, next_range = 0, first_range = 0;
  for (const feed_piece& each : plan.first) {
    demand(bytes == 0 || each.is_needed, "bytes go before a name that may be refused");
    bytes += each.is_needed ? each.bytes() : 0;
  }
  for (const feed_batch& batch : plan.batches) {
    demand(batch.first_piece == next_piece && batch.piece_count > 0, "a piece in no batch, or in two");
    next_piece += batch.piece_count;
    demand(batch.own_range == next_range && batch.end_range >= next_range, "pages of no batch, or of two");
    next_range = batch.end_range;
    demand(batch.first_range >= first_range && batch.first_range < batch.end_range, "pages that go back");
    first_range = batch.first_range;
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (const feed_piece& each : plan.pieces_of(batch)) {
      bytes += each.bytes();
      demand(each.end() - each.begin() <= window_bytes, "a piece larger than a window");
      demand(each.slot_offset >= 0 && each.slot_offset + each.bytes() <= plan.slot_bytes, "a copy beyond its slot");
      for (const auto& [begin, end] : taken)
        demand(each.slot_offset >= end || each.slot_offset + each.bytes() <= begin, "copies that overlap");
      taken.emplace_back(each.slot_offset, each.slot_offset + each.bytes());
      for (const std::byte* at : {each.begin(), each.end() - 1}) {
        bool held = false;
        for (const page_range& pages : plan.ranges_of(batch)) held |= pages.begin <= at && at < pages.end;
        demand(held, "a piece outside its batch's pages");
      }
    }
  }
  demand(next_piece == plan.pieces.size(), "pieces that no batch loads");
  demand(next_range == plan.ranges.size(), "pages that no batch reads");
  demand(bytes == plan.needed_bytes, "pieces that are not the needed bytes");
}

/// The most that one batch needs pinned.
std::int64_t most_batch_pages(const feed_plan& plan) {
  std::int64_t most = 0;
  for (const feed_batch& batch : plan.batches) {
    std::int64_t bytes = 0;
    for (const page_range& pages : plan.ranges_of(batch)) bytes += pages.bytes();
    most = std::max(most, bytes);
  }
  return most;
}

std::int64_t draw_window() { return draw_small(0, 2) == 0 ? 4096 : draw(1, 30) * 4096; }

/// One model with one large matrix, and all else small.
std::vector<reference::layer> large_model(int tp_size = 1, reference::cut split = reference::cut::whole) {
  std::vector<reference::layer> layers = {linear("big", {whole_shard("big", 512, split)}, 256, 128, 128),
                                          plain("norm.weight", {7}), plain("table", {300, 40})};
  layers[0].tp_size = tp_size;
  layers[0].tp_rank = tp_size - 1;
  return layers;
}

}  // namespace

TEST_CASE(
    "feed: law 1 on the host: any model, window and split arrives as a cold start, and only what is needed counts") {
  property("a host feed loads a checkpoint", [] {
    const std::vector<reference::layer> layers = draw_model();
    const reference::checkpoint all = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    const checkpoint_files on_disk(all, static_cast<int>(draw_small(1, 3)), draw_seed());
    engine<host_executor> to(layers, draw_small(0, 3));
    const std::int64_t window = draw_window();
    check_plan(plan_feed(to.model().records(), on_disk.tensors(), window), window);
    host_feed feed({.window_bytes = window});
    auto open = to.start();
    feed_report told;
    heard progress;
    must(feed.send(to.model(), open, on_disk.tensors(), progress, &told));
    must(open.finish());
    to.demand_cold(all);
    progress.check(told, on_disk.tensors().size());
    demand(
        told.needed_bytes == bytes_needed(layers, all),
        "needed " + std::to_string(told.needed_bytes) + ", the reference " + std::to_string(bytes_needed(layers, all)));
    demand(told.needed_bytes + told.skipped_bytes == on_disk.bytes(), "bytes that are neither needed nor skipped");
    demand(told.way() == "host" && told.first_bytes + told.host_bytes == told.needed_bytes, "another way");
  });
}

TEST_CASE(
    "feed: law 1 on a late device: pages are pinned before they are read and unpinned after, rings and windows "
    "reused") {
  property("a late feed loads a checkpoint", [] {
    const std::vector<reference::layer> layers = draw_model();
    const reference::checkpoint all = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    const checkpoint_files on_disk(all, static_cast<int>(draw_small(1, 3)), draw_seed());
    engine<host_executor> to(layers);
    late_device device;
    device.delay = static_cast<int>(draw_small(0, 4));
    device.can_pin = static_cast<late_device::pins>(draw_small(0, 2));
    device.copies_late = draw_small(0, 1) == 1;
    feed_options options{.window_bytes = draw_window(), .threads = static_cast<int>(draw_small(1, 4))};
    options.registers = !one_in(5);
    if (draw_small(0, 1) == 1) options.most_registered_bytes = draw_window();
    options.ring_bytes = one_in(4) ? 0 : draw(6, 60) * 4096;
    options.keep_registered = one_in(3);
    options.unregister_later = one_in(3);
    const bool keeps = options.keep_registered || options.unregister_later;
    std::vector<std::byte> window(static_cast<std::size_t>(one_in(3) ? 3 * 4608 : draw(6, 60) * 4096));
    if (draw_small(0, 1) == 1) options.device_window = device.window = window;
    {
      late_feed feed(options, device);
      const int rounds = keeps ? 2 : 1;
      for (int round = 0; round < rounds; ++round) {
        auto open = to.start();
        late_update late(open, device);
        feed_report told;
        heard progress;
        const std::int64_t pins_before = device.pin_calls;
        must(feed.send(to.model(), late, on_disk.tensors(), progress, &told));
        for (const std::string& wrong : device.broken) demand(false, wrong);
        demand(device.queue.empty(), "the feed did not wait for its last batch");
        must(open.finish());
        to.demand_cold(all);
        progress.check(told, on_disk.tensors().size());
        demand(told.first_bytes + told.registered_bytes + told.ring_bytes + told.host_bytes == told.needed_bytes,
               "bytes that went no way");
        if (!keeps) demand(device.pinned.empty(), "pages that are still pinned");
        if (device.can_pin == late_device::pins::none || !(options.registers || options.keep_registered))
          demand(told.registered_bytes == 0, "registered without pins");
        else if (device.can_pin == late_device::pins::all && options.keep_registered)
          demand(told.ring_bytes == 0 && (round == 0 || device.pin_calls == pins_before), "pinned again");
        demand(options.ring_bytes > 0 || told.ring_bytes == 0, "a ring without memory");
      }
    }
    demand(device.pinned.empty(), "pages pinned for ever");
    for (const std::string& wrong : device.broken) demand(false, wrong);
  });
}

TEST_CASE("feed: pages and ring at once: the first batches are pinned, the last ones copied, and pins go in order") {
  const std::vector<reference::layer> layers = large_model();
  const reference::checkpoint all = random_checkpoint(layers, 31);
  const checkpoint_files on_disk(all, 2, 32);
  std::vector<std::byte> window(1 << 20);
  for (const bool copies : {false, true})
    for (const bool later : {false, true})
      for (const std::int64_t first_bad : {std::int64_t{1} << 30, std::int64_t{3}, std::int64_t{0}}) {
        engine<host_executor> to(layers);
        late_device device;
        device.copies_late = true;
        device.first_bad_pin = first_bad;
        // The third pin waits until the ring is in use, and what the ring has is not read before the third pin.
        const auto is_in_use = [&] {
          const std::lock_guard guard(device.lock);
          return device.ring_loads > 0;
        };
        device.before_pin = [&](std::int64_t call) {
          if (call == 2) detail::poll(is_in_use, [] { return true; });
        };
        device.may_read = [&] {
          const std::lock_guard guard(device.lock);
          return device.pin_calls >= std::min<std::int64_t>(first_bad + 1, 3);
        };
        feed_options options{.window_bytes = 4096, .threads = 3, .registers = true, .unregister_later = later,
                             .ring_bytes = 3 * 4608};
        if (copies) options.device_window = device.window = window;
        late_feed feed(options, device);
        auto open = to.start();
        late_update late(open, device);
        feed_report told;
        heard progress;
        must(feed.send(to.model(), late, on_disk.tensors(), progress, &told));
        must(open.finish());
        to.demand_cold(all);
        progress.check(told, on_disk.tensors().size());
        for (const std::string& wrong : device.broken) FAIL_CHECK(wrong);
        CHECK(told.ring_memory_bytes == options.ring_bytes);
        CHECK(told.ring_bytes > 0);
        CHECK(told.way() == (first_bad == 0 ? "ring" : "registered and ring"));
        CHECK(told.first_bytes + told.registered_bytes + told.ring_bytes == told.needed_bytes);
        // Each file's pages from the first on; not one is unpinned before all are pinned, then in the same order.
        CHECK(device.pinned.empty() == (!later || first_bad == 0));
        feed.release();
        const std::size_t pins = device.steps.size() / 2;
        CHECK(pins >= static_cast<std::size_t>(std::min<std::int64_t>(first_bad, 2)));
        CHECK(pins <= static_cast<std::size_t>(first_bad));
        for (std::size_t i = 0; i < pins; ++i) {
          CHECK(device.steps[i].first == 'p');
          CHECK(device.steps[pins + i].first == 'u');
          CHECK(device.steps[i].second == device.steps[pins + i].second);
        }
        CHECK(device.pinned.empty());
      }
}

TEST_CASE("feed: no more is pinned at a time than asked for, and a private mapping never") {
  const std::vector<reference::layer> layers = large_model();
  const reference::checkpoint all = random_checkpoint(layers, 33);
  const checkpoint_files on_disk(all, 1, 34);
  for (const bool is_shared : {true, false})
    for (const bool keeps : {false, true})
      for (const std::int64_t most : {std::int64_t{1}, std::int64_t{40000}}) {
        engine<host_executor> to(layers);
        late_device device;
        late_feed feed({.window_bytes = 8192, .registers = true, .most_registered_bytes = most, .keep_registered = keeps,
                        .ring_bytes = 0},
                       device);
        std::vector<checkpoint_tensor> tensors(on_disk.tensors().begin(), on_disk.tensors().end());
        for (checkpoint_tensor& each : tensors) {
          CHECK(each.is_shared);
          each.is_shared = is_shared || each.name == "norm.weight";
        }
        auto open = to.start();
        late_update late(open, device);
        feed_report told;
        must(feed.send(to.model(), late, tensors, &told));
        must(open.finish());
        to.demand_cold(all);
        CHECK(device.broken.empty());
        const feed_plan plan = plan_feed(to.model().records(), on_disk.tensors(), 8192);
        if (!keeps) CHECK(told.peak_registered_bytes <= std::max(most, most_batch_pages(plan)));
        CHECK(told.way() == (is_shared ? "registered" : "host"));
        if (!is_shared) CHECK(told.registered_bytes == 0);
      }
}

TEST_CASE("feed: a rank needs its slice of a matrix, and a matrix larger than a window is cut") {
  for (const auto split : {reference::cut::column, reference::cut::row}) {
    const std::vector<reference::layer> layers = large_model(4, split);
    const reference::checkpoint all = random_checkpoint(layers, 5);
    const checkpoint_files on_disk(all, 1, 6);
    engine<host_executor> to(layers);
    const feed_plan plan = plan_feed(to.model().records(), on_disk.tensors(), 16384);
    check_plan(plan, 16384);
    // A quarter of the matrix, and of its 4 x 2 scales the one row, or the one column, that the slice touches.
    const std::int64_t scales = split == reference::cut::column ? 2 * 4 : 4 * 4;
    CHECK(plan.needed_bytes == 512 * 256 / 4 + scales + 7 * 2 + 300 * 40 * 2);
    CHECK(plan.skipped_bytes == on_disk.bytes() - plan.needed_bytes);
    CHECK(plan.first.size() == 1);  // the scales
    std::size_t cuts = 0;
    for (const feed_piece& each : plan.pieces)
      if (on_disk.tensors()[each.tensor].name == "big.weight") {
        ++cuts;
        CHECK(each.rows * each.row_bytes == each.part.extent.elements());
        CHECK(each.part.extent[1] == (split == reference::cut::column ? 256 : 64));
      }
    CHECK(cuts >= (split == reference::cut::column ? 2 : 8));  // the rows of a column slice are apart
  }
}

TEST_CASE("feed: a load that fails in the middle: its status comes back, nothing is read or pinned any more") {
  const std::vector<reference::layer> layers = large_model();
  const reference::checkpoint all = random_checkpoint(layers, 7);
  const checkpoint_files on_disk(all, 2, 8);
  for (const bool keeps : {false, true})
    for (std::size_t at = 0; at < 20; at += 3) {
      engine<host_executor> to(layers);
      late_device device;
      device.fail_at = at;
      late_feed feed(
          {.window_bytes = 8192, .threads = 3, .registers = true, .keep_registered = keeps,
           .ring_bytes = at % 2 == 0 ? 0 : 5 * 9000},
          device);
      auto open = to.start();
      late_update late(open, device);
      heard progress;
      const status failed = feed.send(to.model(), late, on_disk.tensors(), progress);
      CHECK(failed.code == error_code::duplicate);
      CHECK(failed.param == "the load");
      CHECK(progress.steps.size() == at);
      CHECK(device.loads == at + 1);
      CHECK(device.queue.empty());
      CHECK(device.broken.empty());
      CHECK((device.pinned.empty() || keeps));
      feed.release();
      CHECK(device.pinned.empty());
      // The update is the caller's: it may still be completed, by another feed.
      CHECK(open.is_open());
      CHECK(open.abort().ok());
    }
}

TEST_CASE("feed: law 5: a tensor that the model does not know, or knows otherwise, is refused before a byte is read") {
  const std::vector<reference::layer> layers = large_model();
  struct wrong {
    std::string name;
    error_code code;
    dtype type;
    std::vector<std::int64_t> dims;
  };
  for (const wrong& bad : {wrong{"stranger", error_code::unknown_name, dtype::bf16, {40, 300}},
                           wrong{"table", error_code::wrong_shape, dtype::bf16, {40, 300}},
                           wrong{"table", error_code::wrong_dtype, dtype::fp16, {300, 40}},
                           wrong{"norm.weight", error_code::wrong_dtype, dtype::fp32, {7}}}) {
    reference::checkpoint all = random_checkpoint(layers, 9);
    std::int64_t bytes = bytes_of(bad.type);
    for (const std::int64_t each : bad.dims) bytes *= each;
    all[bad.name] = {bad.type, bad.dims, std::vector<std::byte>(static_cast<std::size_t>(bytes))};
    const checkpoint_files on_disk(all, 1, 10);
    engine<host_executor> to(layers);
    late_device device;
    late_feed feed({}, device);
    check_plan(plan_feed(to.model().records(), on_disk.tensors(), 4096), 4096);
    const reference::checkpoint good = random_checkpoint(layers, 35);
    to.reload(good);
    auto open = to.start();
    late_update late(open, device);
    const status refused = feed.send(to.model(), late, on_disk.tensors());
    check_refused(refused, bad.code, bad.name);
    CHECK(device.pin_calls == 0);
    CHECK(open.abort().ok());
    CHECK(to.model().state() == model_state::live);  // nothing was written
    to.demand_cold(good);
  }
}

TEST_CASE("feed: what is not needed is named to the update and not read") {
  std::vector<reference::layer> layers = large_model();
  reference::checkpoint all = random_checkpoint(layers, 11);
  const reference::checkpoint needed = all;
  all["vision.weight"] = {dtype::bf16, {400, 300}, std::vector<std::byte>(400 * 300 * 2)};
  const checkpoint_files on_disk(all, 1, 12);
  engine<host_executor> to(layers, 0, [](model<host_executor>& made) { made.ignore("vision.*"); });
  late_device device;
  late_feed feed({}, device);
  auto open = to.start();
  late_update late(open, device);
  feed_report told;
  must(feed.send(to.model(), late, on_disk.tensors(), &told));
  must(open.finish());
  to.demand_cold(needed);
  CHECK(told.skipped_bytes == 400 * 300 * 2);
  CHECK(open.report().ignored.tensors == 1);
  CHECK(open.report().ignored.bytes == 400 * 300 * 2);
}

TEST_CASE("feed: a copy may bring what lies between two pieces, if it is pinned") {
  std::vector<reference::layer> layers;
  reference::checkpoint all;
  for (int i = 0; i < 20; ++i) {
    layers.push_back(plain("t" + std::to_string(i), {150, 10}));
    for (const char* stranger : {"vision.a", "vision.b"})
      all[stranger + std::to_string(i)] = {dtype::u8, {4500}, std::vector<std::byte>(4500)};
  }
  for (const auto& [name, value] : random_checkpoint(layers, 23)) all[name] = value;
  const checkpoint_files on_disk(all, 1, 24);
  engine<host_executor> to(layers, 0, [](model<host_executor>& made) { made.ignore("vision.*"); });
  late_device device;
  std::vector<std::byte> window(4 << 20);
  device.window = window;
  late_feed feed({.device_window = window}, device);
  auto open = to.start();
  late_update late(open, device);
  feed_report told;
  must(feed.send(to.model(), late, on_disk.tensors(), &told));
  must(open.finish());
  CHECK(told.needed_bytes == 20 * 3000);
  for (const auto& [name, value] : std::map(all))
    if (name.starts_with("vision")) all.erase(name);
  to.demand_cold(all);
  CHECK(device.broken.empty());
}

TEST_CASE("feed: pages that stay registered: other windows over them are pinned anew, the next file beside them") {
  const std::vector<reference::layer> layers = large_model();
  const reference::checkpoint a = random_checkpoint(layers, 13), b = random_checkpoint(layers, 14);
  const checkpoint_files on_disk_a(a, 1, 15), on_disk_b(b, 1, 16);
  engine<host_executor> to(layers);
  late_device device;
  late_feed feed({.window_bytes = 8192, .keep_registered = true}, device);
  const auto send = [&](const checkpoint_files& from, std::span<const checkpoint_tensor> tensors) {
    std::vector<std::string_view> names;
    for (const checkpoint_tensor& each : tensors) names.push_back(each.name);
    auto open =
        to.start(tensors.size() == from.tensors().size() ? start_options{}
                                                         : start_options{.scope = update_scope::partial(names)});
    late_update late(open, device);
    const std::int64_t before = device.pin_calls;
    must(feed.send(to.model(), late, tensors));
    must(open.finish());
    return device.pin_calls - before;
  };
  CHECK(send(on_disk_a, on_disk_a.tensors()) > 10);
  const std::int64_t kept = feed.kept_bytes();
  CHECK(send(on_disk_b, on_disk_b.tensors()) > 10);
  CHECK(feed.kept_bytes() > kept);
  CHECK(send(on_disk_a, on_disk_a.tensors()) == 0);
  to.demand_cold(a);
  std::vector<checkpoint_tensor> some;
  for (const checkpoint_tensor& each : on_disk_a.tensors())
    if (each.name == "table") some.push_back(each);
  CHECK(send(on_disk_a, some) > 0);  // windows that begin elsewhere
  to.demand_cold(a);
  feed.release();
  CHECK(feed.kept_bytes() == 0);
  CHECK(device.pinned.empty());
  CHECK(device.broken.empty());
}

TEST_CASE("feed: pages that stay registered do so when other pages of their window cannot be pinned") {
  const std::vector<reference::layer> layers = {plain("a", {300, 40}), plain("b", {300, 40})};
  const reference::checkpoint all = random_checkpoint(layers, 27);
  std::optional<checkpoint_files> on_disk;
  for (std::uint64_t seed = 0; !on_disk || on_disk->tensors()[0].file == on_disk->tensors()[1].file; ++seed)
    on_disk.emplace(all, 2, seed);
  engine<host_executor> to(layers);
  to.reload(all);
  late_device device;
  late_feed feed({.keep_registered = true}, device);
  const auto send = [&](std::span<const checkpoint_tensor> tensors) {
    std::vector<std::string_view> names;
    for (const checkpoint_tensor& each : tensors) names.push_back(each.name);
    auto open = to.start_partial(names);
    late_update late(open, device);
    feed_report told;
    must(feed.send(to.model(), late, tensors, &told));
    must(open.finish());
    to.demand_cold(all);
    return told;
  };
  CHECK(send(on_disk->tensors().first(1)).way() == "registered");
  const std::int64_t kept = feed.kept_bytes();
  device.can_pin = late_device::pins::none;
  const feed_report told = send(on_disk->tensors());
  CHECK(told.loads == 1);
  CHECK(told.way() == "ring");
  CHECK(feed.kept_bytes() == kept);
  CHECK(device.pinned.size() == 1);
  feed.release();
  CHECK(device.pinned.empty());
  CHECK(device.broken.empty());
}

TEST_CASE("feed: memory that the device has not read is not used again by the next send") {
  enum class by { ring, window, pages };
  for (const by way : {by::ring, by::window, by::pages})
    for (const bool is_stuck : {true, false}) {
      CAPTURE(static_cast<int>(way));
      const std::vector<reference::layer> layers = {plain("a", {512, 64}), plain("b", {500, 64})};
      const reference::checkpoint all = random_checkpoint(layers, 19);
      const checkpoint_files on_disk(all, 1, 20);
      engine<host_executor> to(layers);
      late_device device;
      device.is_stuck = true;
      std::vector<std::byte> window(std::size_t{1} << 20);
      feed_options options{.window_bytes = 16 * 4096, .threads = 2, .registers = way != by::ring,
                           .ring_bytes = std::int64_t{1} << 20, .most_wait_seconds = 0};
      options.keep_registered = way == by::pages;
      if (way == by::window) options.device_window = device.window = window;
      late_feed feed(options, device);
      auto open = to.start();
      late_update late(open, device);
      must(feed.send(to.model(), late, on_disk.tensors().first(1)));
      device.is_stuck = is_stuck;
      device.delay = 0;
      const status second = feed.send(to.model(), late, on_disk.tensors().subspan(1));
      if (is_stuck) {
        CHECK(second.code == error_code::wrong_state);
        device.is_stuck = false;
        must(feed.send(to.model(), late, on_disk.tensors().subspan(1)));
      } else {
        must(second);
      }
      {
        const std::lock_guard guard(device.lock);
        device.complete(1000);
      }
      must(open.finish());
      to.demand_cold(all);
      feed.release();
      CHECK(device.pinned.empty());
      CHECK(device.broken.empty());
    }
}

TEST_CASE("feed: pages that the caller has pinned are not pinned again") {
  const std::vector<reference::layer> layers = large_model();
  const reference::checkpoint all = random_checkpoint(layers, 17);
  const checkpoint_files on_disk(all, 1, 18);
  engine<host_executor> to(layers);
  late_device device;
  const auto whole = (*on_disk).tensors();
  const std::byte* begin = detail::page_floor(static_cast<const std::byte*>(whole.front().tensor.data));
  device.pinned[begin] = begin + (on_disk.bytes() / 4096 + 2) * 4096;
  late_feed feed({.window_bytes = 8192, .already_pinned = true}, device);
  auto open = to.start();
  late_update late(open, device);
  feed_report told;
  must(feed.send(to.model(), late, on_disk.tensors(), &told));
  must(open.finish());
  to.demand_cold(all);
  CHECK(device.pin_calls == 0);
  CHECK(device.pinned.size() == 1);
  CHECK(told.way() == "registered");
  CHECK(device.broken.empty());
}

TEST_CASE("feed: a device that never reads: an update that ends elsewhere ends the feed, and its pages stay pinned") {
  const std::vector<reference::layer> layers = large_model();
  const reference::checkpoint all = random_checkpoint(layers, 19);
  const checkpoint_files on_disk(all, 1, 20);
  for (const bool through_ring : {false, true}) {
    engine<host_executor> to(layers);
    late_device device;
    device.is_stuck = true;
    late_feed feed({.window_bytes = 4096,
                    .threads = 2,
                    .registers = !through_ring,
                    .ring_bytes = through_ring ? 3 * 4608 : 0,
                    .most_wait_seconds = 0},
                   device);
    auto open = to.start();
    late_update late(open, device);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::lock_guard guard(device.lock);
      device.open = false;
    });
    const status failed = feed.send(to.model(), late, on_disk.tensors());
    other.join();
    CHECK(failed.code == error_code::aborted);
    CHECK(device.pinned.empty() == through_ring);
    CHECK((feed.kept_bytes() == 0) == through_ring);
    device.queue.clear();  // the update was cancelled
    feed.release();        // but its stream is still held
    CHECK(device.pinned.empty() == through_ring);
    device.is_stuck = false;
    device.delay = 0;
    feed.release();
    CHECK(device.pinned.empty());
    CHECK(device.broken.empty());
  }
}

TEST_CASE("feed: a model and its update whose executor is erased") {
  const std::vector<reference::layer> layers = large_model();
  const reference::checkpoint all = random_checkpoint(layers, 25);
  const checkpoint_files on_disk(all, 2, 26);
  engine<host_executor> to(layers);
  model_ref erased(to.model());
  status refused;
  update_ref open = erased.start(in_mode_under_test({}), &refused);
  must(refused);
  host_feed feed({});
  feed_report told;
  must(feed.send(erased, open, on_disk.tensors(), &told));
  must(open.finish());
  to.demand_cold(all);
  CHECK(told.needed_bytes == on_disk.bytes());
}

TEST_CASE("feed: lent memory that is too small is refused") {
  const std::vector<reference::layer> layers = large_model();
  const reference::checkpoint all = random_checkpoint(layers, 21);
  const checkpoint_files on_disk(all, 1, 22);
  engine<host_executor> to(layers);
  std::vector<std::byte> little(4096);
  for (const bool ring : {false, true}) {
    late_device device;
    feed_options options;
    (ring ? options.ring : options.device_window) = little;
    late_feed feed(options, device);
    auto open = to.start();
    late_update late(open, device);
    check_refused(feed.send(to.model(), late, on_disk.tensors()), error_code::bad_argument, "lent memory");
    CHECK(device.loads == 0);
  }
}

}  // namespace wreload::test
