#pragma once
/// `ready_batches`: threads that bring a plan's batches to where the device can read them.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "copy_runs.hpp"
#include "feed_plan.hpp"
#include "pinned_ranges.hpp"

namespace wreload::detail {

/// A batch, and from where the device reads it.
struct ready_batch {
  enum class way : std::uint8_t {
    none,
    pinned,  ///< where its file is mapped
    ring,    ///< from its copy in a slot
    heap     ///< nowhere: pages cannot be pinned, and there is no ring
  };
  std::size_t batch = 0;
  way how = way::none;
  std::byte* slot = nullptr;
};

/// Two kinds of threads share the batches of a plan. One pins the pages of batches from the first on (the driver has
/// one lock: more threads would not pin faster), and unpins them when it has no more to pin, or too many are pinned.
/// Others copy batches, from the last on, to slots of a pinned ring; all of them work at one slot until it is full. So
/// they meet somewhere. A batch whose pages cannot be pinned ends the pinning: the ring has the rest, or the heap.
///
/// A page that two batches share needs no care: pinned batches are the first ones, with all pages up to the last of
/// them, and the ring needs no pins.
template <class Pages>
class ready_batches {
 public:
  struct settings {
    bool are_pinned = false;  ///< all, by the caller: there is nothing to do
    bool pins = true;
    bool pins_all = false;               ///< the ring has only what cannot be pinned
    bool unpins = true;                  ///< false: what is pinned at the end stays so, and is kept
    std::int64_t most_pinned_bytes = 0;  ///< at a time, but at least a batch
    std::byte* ring = nullptr;
    std::size_t slots = 0;  ///< of the ring
    int threads = 1;        ///< that fill it
    std::int64_t chunk_bytes = 0;
  };

  ready_batches(Pages& pages, const feed_plan& plan, pinned_ranges<Pages>& ranges, const settings& asked)
      : pages_(pages),
        plan_(plan),
        ranges_(ranges),
        asked_(asked),
        is_pinning_(asked.pins && !asked.are_pinned),
        back_(plan.batches.size()),
        turn_(plan.batches.size(), nobody),
        slots_(asked.slots) {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      slots_[i].memory = asked.ring + static_cast<std::int64_t>(i) * plan.slot_bytes;
    if (asked.are_pinned) {
      for (; front_ < back_; ++front_) pinned_.push_back(front_);
      return;
    }
    if (asked.pins) threads_.emplace_back([this] { pin_batches(); });
    for (int i = 0; i < asked.threads && !slots_.empty(); ++i) threads_.emplace_back([this] { fill_slots(); });
  }
  ready_batches(const ready_batches&) = delete;  // threads point to it
  ready_batches& operator=(const ready_batches&) = delete;
  ~ready_batches() { stop(std::chrono::seconds(0)); }

  /// Waits for a batch that is ready; the ring's go first, so that its slots come back soon. `way::none` where
  /// `may_go_on` said no before that.
  ///
  /// Requires: not all batches were taken
  template <class GoOn>
  ready_batch next(GoOn&& may_go_on) {
    std::unique_lock guard(lock_);
    for (;;) {
      if (!filled_.empty()) {
        slot& from = *filled_.front();
        filled_.pop_front();
        return {from.batch, ready_batch::way::ring, from.memory};
      }
      if (!pinned_.empty()) {
        const std::size_t batch = pinned_.front();
        pinned_.pop_front();
        return {batch, ready_batch::way::pinned};
      }
      if (slots_.empty() && !is_pinning_ && front_ < back_) return {front_++, ready_batch::way::heap};
      if (!may_go_on()) return {};
      changed_.wait_for(guard, std::chrono::milliseconds(5));
    }
  }

  /// The batch was handed to the device, as number `turn` of the send: `Pages` can tell from now on when it was read.
  void issued(std::size_t batch, std::size_t turn) {
    const std::lock_guard guard(lock_);
    turn_[batch] = turn;
  }

  /// Ends the threads once everything that they pinned is unpinned (or kept). Nothing else is pinned from now on. What
  /// the device still reads after `most` stays pinned, and is kept.
  void stop(std::chrono::seconds most) {
    {
      const std::lock_guard guard(lock_);
      is_stopping_ = true;
      deadline_ = std::chrono::steady_clock::now() + most;
    }
    work_.notify_all();
    for (std::thread& each : threads_) each.join();
    threads_.clear();
  }

 private:
  static constexpr std::size_t nobody = ~std::size_t{0};

  struct slot {
    std::byte* memory = nullptr;
    std::size_t batch = nobody;
    std::vector<copy_run> runs = {};
    std::size_t next_run = 0;
    std::size_t runs_left = 0;
  };

  void pin_batches() {
    pages_.enter_thread();
    std::size_t end = 0;    // of the batches that are pinned
    std::size_t freed = 0;  // of them, from the first on
    bool has_time = true;
    const auto free_next = [&] {
      has_time = wait_until_read(freed);
      if (!has_time) return;
      ++freed;
      ranges_.unpin(freed < plan_.batches.size() ? plan_.batches[freed].first_range : plan_.ranges.size());
    };
    for (;;) {
      {
        const std::lock_guard guard(lock_);
        if (is_stopping_ || front_ == back_) break;
        ++front_;
      }
      const feed_batch& batch = plan_.batches[end];
      while (has_time && freed < end && ranges_.bytes_with(batch.end_range) > asked_.most_pinned_bytes) free_next();
      const bool pinned = has_time && batch.is_shared && ranges_.pin(batch.end_range);
      const std::lock_guard guard(lock_);
      if (!pinned) {
        --front_;
        break;
      }
      pinned_.push_back(end++);
      changed_.notify_one();
    }
    {
      const std::lock_guard guard(lock_);
      is_pinning_ = false;
    }
    changed_.notify_one();
    work_.notify_all();
    while (asked_.unpins && has_time && freed < end) free_next();
    if (asked_.unpins && has_time) ranges_.unpin(plan_.ranges.size());
    ranges_.keep();
  }

  /// Whether the device has read the batch, or never will.
  bool wait_until_read(std::size_t batch) {
    for (;;) {
      std::size_t turn = nobody;
      bool is_last_try = false;
      {
        const std::lock_guard guard(lock_);
        turn = turn_[batch];
        if (turn == nobody && is_stopping_) return true;
        is_last_try = is_stopping_ && std::chrono::steady_clock::now() >= deadline_;
      }
      if (turn != nobody && pages_.is_read(turn)) return true;
      if (is_last_try) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  void fill_slots() {
    std::unique_lock guard(lock_);
    while (!is_stopping_) {
      if (filling_ != nullptr && filling_->next_run < filling_->runs.size())
        copy_next(guard);
      else if (!is_opening_ && has_batch())
        open_slot(guard);
      else if (front_ == back_ && !is_pinning_)
        return;
      else
        work_.wait(guard);
    }
  }
  bool has_batch() const { return front_ < back_ && !(is_pinning_ && asked_.pins_all); }

  void copy_next(std::unique_lock<std::mutex>& guard) {
    slot& to = *filling_;
    const copy_run& run = to.runs[to.next_run++];
    guard.unlock();
    copy_rows_past_cache(run, to.memory + run.slot_offset);
    guard.lock();
    if (--to.runs_left > 0) return;
    filled_.push_back(&to);
    changed_.notify_one();
  }

  /// Waits until the next slot is free, and gives it a batch if there still is one.
  void open_slot(std::unique_lock<std::mutex>& guard) {
    slot& next = slots_[next_slot_];
    is_opening_ = true;
    while (next.batch != nobody && !is_stopping_) {
      const std::size_t turn = turn_[next.batch];
      guard.unlock();
      const bool is_free = turn != nobody && pages_.is_read(turn);
      if (!is_free) std::this_thread::sleep_for(std::chrono::microseconds(50));
      guard.lock();
      if (is_free) next.batch = nobody;
    }
    is_opening_ = false;
    if (!is_stopping_ && has_batch()) {
      next.batch = is_pinning_ ? --back_ : front_++;
      next.runs.clear();
      for_each_copy(plan_.pieces_of(plan_.batches[next.batch]),
                    [&](const copy_run& run) { append_in_chunks(run, asked_.chunk_bytes, next.runs); });
      next.next_run = 0;
      next.runs_left = next.runs.size();
      filling_ = &next;
      next_slot_ = (next_slot_ + 1) % slots_.size();
    }
    work_.notify_all();
  }

  Pages& pages_;
  const feed_plan& plan_;
  pinned_ranges<Pages>& ranges_;  ///< of the pinning thread
  settings asked_;
  std::mutex lock_ = {};                  ///< of everything below
  std::condition_variable changed_ = {};  ///< for `next`
  std::condition_variable work_ = {};     ///< for the threads
  bool is_pinning_;
  bool is_stopping_ = false;
  std::chrono::steady_clock::time_point deadline_ = {};
  std::size_t front_ = 0;  ///< batches [front, back) are nobody's yet
  std::size_t back_;
  std::deque<std::size_t> pinned_ = {};  ///< that `next` has to give
  std::deque<slot*> filled_ = {};
  std::vector<std::size_t> turn_;  ///< per batch
  std::vector<slot> slots_;
  std::size_t next_slot_ = 0;
  slot* filling_ = nullptr;
  bool is_opening_ = false;
  std::vector<std::thread> threads_ = {};
};

}  // namespace wreload::detail
