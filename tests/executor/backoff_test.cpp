// backoff: asks at once while a wait is young, and sleeps once it is old.
#include <algorithm>
#include <chrono>

#include <doctest/doctest.h>

#include <wreload/executor/backoff.hpp>

using wreload::detail::backoff;

namespace {

using clock_type = std::chrono::steady_clock;

clock_type::duration time_of(backoff& pause) {
  const auto before = clock_type::now();
  pause();
  return clock_type::now() - before;
}

}  // namespace

TEST_CASE("a young wait asks again at once, however often it has asked") {
  bool found = false;
  for (int tries = 0; tries < 200 && !found; ++tries) {  // other processes may take the processor
    backoff pause;
    const auto begin = clock_type::now();
    auto quickest = clock_type::duration::max();  // of the second half
    for (auto now = begin; now < begin + backoff::patience * 9 / 10; now = clock_type::now()) {
      const auto took = time_of(pause);
      if (now > begin + backoff::patience / 2) quickest = std::min(quickest, took);
    }
    found = quickest < backoff::nap;
  }
  CHECK(found);
}

TEST_CASE("an old wait sleeps, however seldom it has asked") {
  backoff pause;
  pause();
  const auto end = clock_type::now() + backoff::patience;
  while (clock_type::now() < end) {
  }
  for (int round = 0; round < 10; ++round) CHECK(time_of(pause) >= backoff::nap);
}

TEST_CASE("errors are looked for every 256th time, and not before the first") {
  backoff pause;
  int looks = 0;
  for (int round = 0; round < 1024; ++round, pause()) looks += pause.is_long();
  CHECK(looks == 4);
  CHECK(!backoff().is_long());
}
