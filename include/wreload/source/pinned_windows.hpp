#pragma once
/// `pinned_windows`: threads that pin windows of pages ahead of the loads that read them, and unpin them behind.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "feed_plan.hpp"

namespace wreload::detail {

/// Calls `is_done()` until it says so or `may_go_on()` no longer does; sleeps in between. Whether it is done.
template <class Done, class GoOn>
bool poll(Done&& is_done, GoOn&& may_go_on) {
  for (int round = 0; !is_done(); ++round) {
    if (!may_go_on()) return is_done();
    if (round > 50)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    else
      std::this_thread::yield();
  }
  return true;
}

/// Each thread takes the next window, pins it, waits until its last batch was issued and read, and unpins it: so at
/// most as many windows as threads are pinned. Pages that are pinned already, and those that stay pinned, belong to
/// `kept`.
template <class Pages>
class pinned_windows {
 public:
  /// Unpins pages in `kept` that overlap the plan's, but are others.
  pinned_windows(Pages& pages, const feed_plan& plan, std::vector<page_range>& kept, bool keeps)
      : pages_(pages),
        plan_(plan),
        kept_(kept),
        keeps_(keeps),
        state_(plan.windows.size()),
        read_by_(plan.windows.size(), nobody) {
    std::vector<page_range> sorted = plan.ranges;  // by address; disjoint
    const auto before = [](const page_range& a, const page_range& b) { return a.begin < b.begin; };
    std::sort(sorted.begin(), sorted.end(), before);
    std::erase_if(kept_, [&](const page_range& old) {
      const auto at = std::upper_bound(sorted.begin(), sorted.end(), old, before);
      const bool overlaps_next = at != sorted.end() && at->begin < old.end;
      const bool overlaps_this = at != sorted.begin() && old.begin < (at - 1)->end;
      if (overlaps_this && *(at - 1) == old && !overlaps_next) return false;
      if (overlaps_this || overlaps_next) pages_.unpin(old);
      return overlaps_this || overlaps_next;
    });
    had_ = kept_;
    std::sort(had_.begin(), had_.end(), before);
    is_kept_.resize(plan.ranges.size());
    for (std::size_t i = 0; i < plan.ranges.size(); ++i)
      is_kept_[i] = std::binary_search(had_.begin(), had_.end(), plan.ranges[i], before);
  }
  pinned_windows(const pinned_windows&) = delete;  // threads point to it
  pinned_windows& operator=(const pinned_windows&) = delete;
  ~pinned_windows() { stop(std::chrono::seconds(0)); }

  /// Requires: `threads` >= the plan's `most_windows`.
  void start(std::size_t threads) {
    const auto is_pinned = [](std::uint8_t kept) { return kept != 0; };
    if (std::all_of(is_kept_.begin(), is_kept_.end(), is_pinned)) {
      std::fill(state_.begin(), state_.end(), state::pinned);
      return;
    }
    for (std::size_t i = 0; i < std::min(threads, state_.size()); ++i) threads_.emplace_back([this] { work(); });
  }

  /// Waits until the windows that the batch reads were tried; false where `may_go_on` said no before that.
  template <class GoOn>
  bool wait(const feed_batch& batch, GoOn&& may_go_on, bool* pinned) {
    std::unique_lock guard(lock_);
    *pinned = true;
    for (std::size_t w = batch.first_window; w <= batch.last_window; ++w) {
      while (state_[w] == state::waiting) {
        if (!may_go_on()) return false;
        changed_.wait_for(guard, std::chrono::milliseconds(5));
      }
      *pinned = *pinned && state_[w] == state::pinned;
    }
    return true;
  }

  /// The batch was handed to the device, which `Pages` knows by now; windows that no later batch reads can go behind
  /// it.
  void release(std::size_t index) {
    const feed_batch& batch = plan_.batches[index];
    {
      const std::lock_guard guard(lock_);
      for (std::size_t w = batch.first_window; w <= batch.last_window; ++w) read_by_[w] = index;
      issued_ = index + 1;
    }
    changed_.notify_all();
  }

  /// Ends the threads once everything they pinned is unpinned (or kept). No more windows are pinned from now on. What
  /// the device still reads after `most` stays pinned, in `kept`.
  void stop(std::chrono::seconds most) {
    {
      const std::lock_guard guard(lock_);
      stopping_ = true;
      deadline_ = std::chrono::steady_clock::now() + most;
    }
    changed_.notify_all();
    for (std::thread& each : threads_) each.join();
    threads_.clear();
  }

  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  enum class state : std::uint8_t { waiting, pinned, failed };
  static constexpr std::size_t nobody = ~std::size_t{0};

  void work() {
    pages_.enter_thread();
    for (;;) {
      std::size_t w = 0;
      {
        const std::lock_guard guard(lock_);
        if (stopping_ || next_ == state_.size()) return;
        w = next_++;
      }
      const bool pinned = pin(w);
      {
        std::unique_lock guard(lock_);
        state_[w] = pinned ? state::pinned : state::failed;
        changed_.notify_all();
        if (!pinned) continue;
        count(w, 1);
        if (keeps_) {
          keep(w);
          continue;
        }
        changed_.wait(guard, [&] { return stopping_ || issued_ > plan_.windows[w].last_batch; });
      }
      unpin(w);
    }
  }

  /// All of a window's ranges, or none.
  bool pin(std::size_t w) {
    const feed_window& window = plan_.windows[w];
    for (std::size_t i = 0; i < window.range_count; ++i) {
      const std::size_t range = window.first_range + i;
      if (is_kept_[range] != 0 || pages_.pin(plan_.ranges[range])) continue;
      for (std::size_t done = window.first_range; done < range; ++done) unpin_range(done);
      return false;
    }
    return true;
  }

  void unpin_range(std::size_t range) {
    if (is_kept_[range] == 0) pages_.unpin(plan_.ranges[range]);
  }

  void unpin(std::size_t w) {
    std::size_t reader = nobody;
    {
      const std::lock_guard guard(lock_);
      reader = read_by_[w];
    }
    const auto may_wait = [this] {
      const std::lock_guard guard(lock_);
      return !stopping_ || std::chrono::steady_clock::now() < deadline_;
    };
    const bool is_read = reader == nobody || poll([&] { return pages_.is_read(reader); }, may_wait);
    const feed_window& window = plan_.windows[w];
    if (is_read)
      for (std::size_t i = 0; i < window.range_count; ++i) unpin_range(window.first_range + i);
    const std::lock_guard guard(lock_);
    if (is_read)
      count(w, -1);
    else
      keep(w);
  }

  void keep(std::size_t w) {
    const feed_window& window = plan_.windows[w];
    for (std::size_t i = 0; i < window.range_count; ++i)
      if (is_kept_[window.first_range + i] == 0) kept_.push_back(plan_.ranges[window.first_range + i]);
  }

  void count(std::size_t w, std::int64_t sign) {
    for (const page_range& each : plan_.ranges_of(plan_.windows[w])) pinned_bytes_ += sign * each.bytes();
    peak_bytes_ = std::max(peak_bytes_, pinned_bytes_);
  }

  Pages& pages_;
  const feed_plan& plan_;
  std::vector<page_range>& kept_;
  bool keeps_;
  std::vector<page_range> had_ = {};        ///< kept from before, by address
  std::vector<std::uint8_t> is_kept_ = {};  ///< per range
  std::mutex lock_ = {};                    ///< of everything below, and of `kept_`
  std::condition_variable changed_ = {};
  std::vector<state> state_;
  std::vector<std::size_t> read_by_;  ///< per window: the last batch issued that reads it
  std::size_t next_ = 0;
  std::size_t issued_ = 0;  ///< batches
  bool stopping_ = false;
  std::chrono::steady_clock::time_point deadline_ = {};
  std::int64_t pinned_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::vector<std::thread> threads_ = {};
};

}  // namespace wreload::detail
