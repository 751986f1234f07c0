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
    return {};
  }
  status write(lane& on, std::byte* data, const std::byte* host, std::int64_t bytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (on.epoch != now) return refuse(error_code::aborted, {}, "an open update", "one that was cancelled");
    return host_executor::write(on, data, host, bytes);
  }

  std::atomic<std::uint32_t> now = 0;
};

}  // namespace

TEST_CASE("laws 7 and 8: a second thread's abort leaves the undo of the first alone") {
  std::vector<std::uint16_t> weight(200 * 300);
  std::vector<float> scale(6);
  model<epoch_executor> tested;
  must(tested.add<Fp8DequantLinear>("m", extents::matrix("m", 200, 300), weight.data(), scale.data()));
  must(tested.seal());
  std::vector<std::uint8_t> codes(weight.size(), 0x38);
  std::vector<float> scales(scale.size(), 1);
  const auto load = [&](update<epoch_executor>& open) {
    must(open.load("m.weight_scale_inv", {.data = scales.data(), .type = dtype::fp32, .extents = {2, 3}}));
    must(open.load("m.weight", {.data = codes.data(), .type = dtype::fp8_e4m3, .extents = {200, 300}}));
  };
  status refused;
  {
    update<epoch_executor> first = tested.start({}, &refused);
    must(refused);
    load(first);
    must(first.finish());
  }
  const std::vector<std::uint16_t> before = weight;
  codes.assign(codes.size(), 0x40);
  for (int round = 0; round < 8; ++round) {
    update<epoch_executor> open = tested.start({.undo = undo_mode::host}, &refused);
    must(refused);
    load(open);
    CHECK(weight != before);
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
    CHECK(weight == before);
  }
}

}  // namespace wreload::test
