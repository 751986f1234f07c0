#pragma once
/// A small lock: <mutex> would cost every file that includes the library a fifth of a second.

#include <atomic>

namespace wreload {

/// Exclusive lock; waiters sleep in the kernel. Not recursive.
class light_lock {
 public:
  void lock() {
    while (taken_.test_and_set(std::memory_order_acquire)) taken_.wait(true, std::memory_order_relaxed);
  }
  void unlock() {
    taken_.clear(std::memory_order_release);
    taken_.notify_one();
  }

 private:
  std::atomic_flag taken_ = ATOMIC_FLAG_INIT;
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
