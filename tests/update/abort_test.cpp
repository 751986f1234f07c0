// Two threads end one update.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <wreload/wreload.hpp>

#include "engine.hpp"

namespace wreload::test {
namespace {

/// The host executor with an epoch, as CUDA's has: a cancel ends the lanes that were opened before it. Writes take a
/// while.
struct epoch_executor : host_executor {
  struct lane : host_executor::lane {
    std::uint32_t epoch = 0;
  };

  lane open(stream_ref) const { return {{}, now.load()}; }
  lane open_own() const { return {{}, now.load()}; }
  status cancel() {
    ++now;
    waits_for_cancel = false;
    return {};
  }
  status write(lane& on, std::byte* data, const std::byte* host, std::int64_t bytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (on.epoch != now) return refuse(error_code::aborted, {}, "an open update", "one that was cancelled");
    return host_executor::write(on, data, host, bytes);
  }
  /// Says nothing of a cancel.
  status wait(lane&) {
    is_waiting = waits_for_cancel.load();
    while (waits_for_cancel) std::this_thread::yield();
    return {};
  }

  std::atomic<std::uint32_t> now = 0;
  std::atomic<bool> waits_for_cancel = false;
  std::atomic<bool> is_waiting = false;
};

/// An FP8 layer that runs in BF16, and what it is sent.
class engine_of_one {
 public:
  engine_of_one() {
    must(model_.add<Fp8DequantLinear>("m", extents::matrix("m", 200, 300), weight_.data(), scale_.data()));
    must(model_.seal());
    update<epoch_executor> first = start();
    load(first, 0x38);
    must(first.finish());
  }

  update<epoch_executor> start(undo_mode undo = undo_mode::none) {
    status refused;
    update<epoch_executor> open = model_.start({.undo = undo}, &refused);
    must(refused);
    return open;
  }
  void load(update<epoch_executor>& open, std::uint8_t code) {
    codes_.assign(codes_.size(), code);
    must(open.load("m.weight_scale_inv", {.data = scales_.data(), .type = dtype::fp32, .extents = {2, 3}}));
    must(open.load("m.weight", {.data = codes_.data(), .type = dtype::fp8_e4m3, .extents = {200, 300}}));
  }
  epoch_executor& executor() { return model_.executor(); }
  model_state state() const { return model_.state(); }
  const std::vector<std::uint16_t>& weight() const { return weight_; }

 private:
  std::vector<std::uint16_t> weight_ = std::vector<std::uint16_t>(200 * 300);
  std::vector<float> scale_ = std::vector<float>(6);
  std::vector<std::uint8_t> codes_ = std::vector<std::uint8_t>(200 * 300);
  std::vector<float> scales_ = std::vector<float>(6, 1);
  model<epoch_executor> model_;
};

}  // namespace

TEST_CASE("laws 7 and 8: a second thread's abort leaves the undo of the first alone") {
  engine_of_one tested;
  const std::vector<std::uint16_t> before = tested.weight();
  for (int round = 0; round < 8; ++round) {
    update<epoch_executor> open = tested.start(undo_mode::host);
    tested.load(open, 0x40);
    CHECK(tested.weight() != before);
    status first, second;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
      second = open.abort();
    });
    first = open.abort();
    other.join();
    must(first);
    must(second);
    CHECK(tested.state() == model_state::live);
    CHECK(tested.weight() == before);
  }
}

TEST_CASE("law 7: a publish that an abort overtakes, while it waits, says so") {
  engine_of_one tested;
  const std::vector<std::uint16_t> before = tested.weight();
  update<epoch_executor> open = tested.start(undo_mode::host);
  tested.load(open, 0x40);
  must(open.prepare());
  must(open.commit());
  tested.executor().waits_for_cancel = true;
  status aborted;
  std::thread other([&] {
    while (!tested.executor().is_waiting) std::this_thread::yield();
    aborted = open.abort();
  });
  const status published = open.publish();
  other.join();
  must(aborted);
  CHECK(published.code == error_code::aborted);
  CHECK(tested.state() == model_state::live);
  CHECK(tested.weight() == before);
}

}  // namespace wreload::test
