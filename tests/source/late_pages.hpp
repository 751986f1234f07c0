#pragma once
/// A device for feeds whose work is late: what was loaded from pinned memory is read only when the feed asks whether it
/// has been, and not the first times. Whoever reuses or unpins memory too early makes the model wrong, or is told.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <wreload/source/feed.hpp>

#include "../update/engine.hpp"

namespace wreload::test {

/// State that the update of the test and the pages of the feed share.
class late_device {
 public:
  enum class pins { all, none, some };
  pins can_pin = pins::all;
  bool copies_late = false;              ///< when they are asked for, rather than at once
  int delay = 2;                         ///< answers "not yet" before a batch is read
  bool is_stuck = false;                 ///< never reads
  std::vector<std::string> broken = {};  ///< what the feed did wrong
  std::int64_t pin_calls = 0;
  std::int64_t first_bad_pin = 1 << 30;                 ///< call of `pin` from which on all fail
  std::function<void(std::int64_t)> before_pin = {};    ///< call
  std::function<bool()> may_read = {};                  ///< whether anything may be read yet
  std::vector<std::pair<char, page_range>> steps = {};  ///< 'p'in, 'u'npin
  std::size_t loads = 0;
  std::size_t ring_loads = 0;             ///< loads and copies from the ring
  std::size_t fail_at = ~std::size_t{0};  ///< load that is refused
  bool open = true;
  std::span<std::byte> window = {};

  std::map<const std::byte*, const std::byte*> pinned = {};  ///< begin -> end
  std::mutex lock = {};

  void complain(const std::string& text) { broken.push_back(text); }

  bool pin(const page_range& pages) {
    if (before_pin) before_pin(pin_calls);
    const std::lock_guard guard(lock);
    const auto address = reinterpret_cast<std::uintptr_t>(pages.begin);
    if (address % 4096 != 0 || pages.bytes() % 4096 != 0 || pages.bytes() <= 0)
      complain("pages that are not whole pages");
    for (const auto& [begin, end] : pinned)
      if (pages.begin < end && begin < pages.end) complain("pages that are pinned already");
    ++pin_calls;
    if (can_pin == pins::none || (can_pin == pins::some && pin_calls % 3 == 0) || pin_calls > first_bad_pin)
      return false;
    pinned[pages.begin] = pages.end;
    steps.emplace_back('p', pages);
    return true;
  }
  void unpin(const page_range& pages) {
    const std::lock_guard guard(lock);
    const auto at = pinned.find(pages.begin);
    if (at == pinned.end() || at->second != pages.end) return complain("unpinned what was not pinned");
    for (const late_load& each : queue)
      for (const piece& part : each.pieces)
        if (overlaps(part.tensor, pages)) complain("unpinned pages that are still to be read");
    pinned.erase(at);
    steps.emplace_back('u', pages);
  }
  bool is_in_ring(const std::byte* begin, const std::byte* end) const {
    return ring != nullptr && begin >= ring && end <= ring + ring_bytes;
  }
  /// Whether pinned pages, or the ring, hold this range.
  bool is_pinned(const std::byte* begin, const std::byte* end) const {
    if (is_in_ring(begin, end)) return true;
    while (begin < end) {
      auto at = pinned.upper_bound(begin);
      if (at == pinned.begin() || (--at)->second <= begin) return false;
      begin = at->second;
    }
    return true;
  }

  bool lies_in_one(const std::byte* begin, const std::byte* end) const {
    if (is_in_ring(begin, end)) return true;
    const auto at = pinned.upper_bound(begin);
    return at != pinned.begin() && end <= std::prev(at)->second;
  }

  struct late_load {
    std::size_t batch = 0;
    std::vector<piece> pieces = {};
  };
  std::deque<late_load> queue = {};
  struct late_copy {
    std::vector<copy_run> runs = {};
    std::byte* to = nullptr;
  };
  std::map<std::size_t, late_copy> copies = {};  ///< by batch
  std::size_t noted = 0;
  std::map<std::size_t, int> asked = {};
  std::function<status(std::span<const piece>)> read = {};
  std::byte* ring = nullptr;
  std::int64_t ring_bytes = 0;

  /// Reads what was loaded up to this batch, in order. Under the lock.
  void complete(std::size_t batch) {
    const auto copy_up_to = [&](std::size_t last) {
      for (; !copies.empty() && copies.begin()->first <= last; copies.erase(copies.begin()))
        copy(copies.begin()->second);
    };
    while (!queue.empty() && queue.front().batch <= batch) {
      copy_up_to(queue.front().batch);
      const status result = read(queue.front().pieces);
      if (!result.ok()) complain(result.message());
      queue.pop_front();
    }
    copy_up_to(batch);
  }
  void copy(const late_copy& what) {
    for (const copy_run& run : what.runs) {
      if (!lies_in_one(run.from, run.from + (run.rows - 1) * run.row_stride_bytes + run.row_bytes))
        complain("a copy from two ranges that were pinned apart");
      for (std::int64_t row = 0; row < run.rows; ++row) {
        const std::byte* from = run.from + row * run.row_stride_bytes;
        std::byte* target = what.to + run.slot_offset + row * run.row_bytes;
        if (!is_pinned(from, from + run.row_bytes)) complain("a copy from memory that is not pinned");
        if (target < window.data() || target + run.row_bytes > window.data() + window.size())
          complain("a copy beyond the lent window");
        std::memcpy(target, from, static_cast<std::size_t>(run.row_bytes));
      }
    }
  }
  bool ask(std::size_t batch) {
    if (may_read && !may_read()) return false;
    const std::lock_guard guard(lock);
    if (batch >= noted) complain("asked for a batch that was not noted");
    if (is_stuck || ++asked[batch] <= delay) return false;
    complete(batch);
    return true;
  }

  static const std::byte* end_of(const tensor_ref& tensor) {
    std::int64_t last = 0;
    for (int dim = 0; dim < tensor.strides.rank(); ++dim) last += (tensor.extents[dim] - 1) * tensor.strides[dim];
    const auto* begin = static_cast<const std::byte*>(tensor.data);
    return begin + (tensor.row_major() ? tensor.bytes() : (last + 1) * bytes_of(tensor.type));
  }
  static bool overlaps(const tensor_ref& tensor, const page_range& pages) {
    return static_cast<const std::byte*>(tensor.data) < pages.end && pages.begin < end_of(tensor);
  }
};

/// What a feed sees of it.
class late_pages {
 public:
  static constexpr bool reads_mappings = false;
  explicit late_pages(late_device& on) : on_(&on) {}

  status prepare(std::size_t) {
    const std::lock_guard guard(on_->lock);
    on_->noted = 0;
    on_->asked.clear();
    return {};
  }
  void enter_thread() {}
  bool pin(const page_range& pages) { return on_->pin(pages); }
  void unpin(const page_range& pages) { on_->unpin(pages); }
  status copy(std::size_t batch, std::span<const copy_run> runs, std::byte* to, std::int64_t after, event_ref* ready) {
    const std::lock_guard guard(on_->lock);
    if (after >= 0 && !on_->copies_late) on_->complete(static_cast<std::size_t>(after));
    if (after >= static_cast<std::int64_t>(batch)) on_->complain("a copy behind a later batch");
    for (const copy_run& run : runs) on_->ring_loads += on_->is_in_ring(run.from, run.from);
    late_device::late_copy late{{runs.begin(), runs.end()}, to};
    if (on_->copies_late)
      on_->copies[batch] = std::move(late);
    else
      on_->copy(late);
    *ready = {on_};
    return {};
  }
  status note(std::size_t batch, event_ref) {
    const std::lock_guard guard(on_->lock);
    if (batch != on_->noted++) on_->complain("batches out of order");
    return {};
  }
  bool is_read(std::size_t batch) { return on_->ask(batch); }
  bool is_landed(std::size_t batch) { return on_->ask(batch); }
  std::byte* take_pinned(std::int64_t bytes) {
    ring_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    on_->ring = ring_.get();
    on_->ring_bytes = bytes;
    return ring_.get();
  }
  void give_back(std::byte*) { on_->ring = nullptr; }

 private:
  late_device* on_;
  std::unique_ptr<std::byte[]> ring_ = {};
};

using late_feed = basic_feed<late_pages>;

/// The update that such a feed loads to.
template <class Update>
class late_update {
 public:
  late_update(Update& to, late_device& on) : to_(to), on_(on) {
    on.read = [this](std::span<const piece> pieces) { return to_.load(pieces); };
  }
  bool is_open() const {
    const std::lock_guard guard(on_.lock);
    return on_.open;
  }
  event_ref flush() { return {}; }
  status load(std::span<const piece> pieces, event_ref ready = {}) {
    const std::lock_guard guard(on_.lock);
    if (on_.loads++ == on_.fail_at) return refuse(error_code::duplicate, "the load", "no failure", "one");
    bool is_late = true;
    for (const piece& part : pieces) {
      const auto* begin = static_cast<const std::byte*>(part.tensor.data);
      on_.ring_loads += on_.is_in_ring(begin, begin);
      is_late = is_late && part.tensor.memory != memory_kind::pageable;
      if (part.tensor.memory == memory_kind::pinned && !on_.is_pinned(begin, late_device::end_of(part.tensor)))
        on_.complain(std::string(part.name) + " is loaded from pages that are not pinned");
      if (part.tensor.memory == memory_kind::device && ready.handle == nullptr)
        on_.complain("a copy that nobody waits for");
    }
    if (!is_late) return to_.load(pieces);
    on_.queue.push_back({on_.noted, {pieces.begin(), pieces.end()}});
    return {};
  }

 private:
  Update& to_;
  late_device& on_;
};

}  // namespace wreload::test
