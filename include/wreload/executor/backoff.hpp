#pragma once
/// `backoff`: what a host thread does between two looks at something that the device will have done.

#include <chrono>
#include <thread>

namespace wreload::detail {

/// Lets other threads run, and asks again at once, for the first 10 ms of a wait; then sleeps before it asks again. By
/// the clock, not by a count: one look may cost 50 ns (a word of memory) or a microsecond (an event).
///
/// Cost:      what takes up to 10 ms (a digest, the pause of a commit) is seen as soon as it is done; until then the
///            thread takes a core, but for threads that want it. What takes longer is seen late by one sleep: 50 us and
///            the timer's slack, which makes 100 of it on a usual Linux, or 1 % of the wait at most
class backoff {
 public:
  void operator()() {
    const clock::time_point now = clock::now();
    if (rounds_++ == 0) began_ = now;
    if (now - began_ < patience)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(nap);
  }
  /// Every 256th time: when to look for errors.
  bool is_long() const { return rounds_ % 256 == 255; }

  static constexpr std::chrono::milliseconds patience{10};
  static constexpr std::chrono::microseconds nap{50};

 private:
  using clock = std::chrono::steady_clock;

  clock::time_point began_ = {};
  unsigned rounds_ = 0;
};

}  // namespace wreload::detail
