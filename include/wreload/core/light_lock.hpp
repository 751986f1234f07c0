#pragma once
/// A small lock: <mutex> would cost every file that includes the library a fifth of a second.

#include <atomic>

namespace wreload {

/// Exclusive lock; waiters sleep in the kernel. Not recursive. Two atomic exchanges where nobody waits.
class light_lock {
 public:
  void lock() {
    int found = free;
    if (state_.compare_exchange_strong(found, taken, std::memory_order_acquire, std::memory_order_relaxed)) return;
    while (state_.exchange(awaited, std::memory_order_acquire) != free) state_.wait(awaited, std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(free) == awaited) state_.notify_one();
  }

 private:
  static constexpr int free = 0, taken = 1, awaited = 2;  ///< awaited: taken, and somebody may sleep

  std::atomic<int> state_ = free;
};

/// Holds a lock for a scope.
class lock_scope {
 public:
  explicit lock_scope(light_lock& lock) : lock_(lock) { lock_.lock(); }
  ~lock_scope() { lock_.unlock(); }
  lock_scope(const lock_scope&) = delete;
  lock_scope& operator=(const lock_scope&) = delete;

 private:
  light_lock& lock_;
};

}  // namespace wreload
