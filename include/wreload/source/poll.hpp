#pragma once
/// `poll`: waits for what can only be asked for.

#include <chrono>
#include <thread>

namespace wreload::detail {

/// Calls `is_done()` until it says so or `may_go_on()` no longer does; sleeps in between. Whether it is done.
template <class Done, class GoOn>
bool poll(Done&& is_done, GoOn&& may_go_on) {
  for (int round = 0; !is_done(); ++round) {
    if (!may_go_on()) return is_done();
    if (round > 50)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else
      std::this_thread::yield();
  }
  return true;
}

}  // namespace wreload::detail
