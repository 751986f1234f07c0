// light_lock: one holder at a time, and nobody sleeps for ever.
#include <algorithm>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/core/light_lock.hpp>

namespace wr = wreload;

TEST_CASE("what is done under the lock is done by one thread at a time") {
  wr::light_lock lock;
  int inside = 0, worst = 0;
  long count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int step = 0; step < 20'000; ++step) {
        const wr::lock_scope guard(lock);
        worst = std::max(worst, ++inside);
        ++count;
        if (step % 1000 == 0) std::this_thread::yield();  // so that others find it taken, and sleep
        --inside;
      }
    });
  for (std::thread& each : threads) each.join();
  CHECK(worst == 1);
  CHECK(count == 80'000);
}
