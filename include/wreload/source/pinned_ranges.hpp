#pragma once
/// `pinned_ranges`: a plan's page ranges, pinned in their order and unpinned in the same order.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "feed_plan.hpp"

namespace wreload::detail {

/// For one thread. Ranges that `kept` has are pinned already; they are neither pinned nor unpinned here.
template <class Pages>
class pinned_ranges {
 public:
  /// Unpins pages in `kept` that overlap the plan's, but are others.
  pinned_ranges(Pages& pages, const feed_plan& plan, std::vector<page_range>& kept)
      : pages_(pages), plan_(plan), kept_(kept), is_kept_(plan.ranges.size()) {
    std::vector<page_range> sorted = plan.ranges;
    std::sort(sorted.begin(), sorted.end(), before);
    std::erase_if(kept_, [&](const page_range& old) {
      const auto at = std::upper_bound(sorted.begin(), sorted.end(), old, before);
      const bool overlaps_next = at != sorted.end() && at->begin < old.end;
      const bool overlaps_this = at != sorted.begin() && old.begin < (at - 1)->end;
      if (overlaps_this && *(at - 1) == old && !overlaps_next) return false;
      if (overlaps_this || overlaps_next) pages_.unpin(old);
      return overlaps_this || overlaps_next;
    });
    std::vector<page_range> had = kept_;
    std::sort(had.begin(), had.end(), before);
    for (std::size_t i = 0; i < plan.ranges.size(); ++i)
      is_kept_[i] = std::binary_search(had.begin(), had.end(), plan.ranges[i], before);
  }
  pinned_ranges(const pinned_ranges&) = delete;  // owns pins
  pinned_ranges& operator=(const pinned_ranges&) = delete;

  /// Pins the next ranges, up to `end`; false at the first that cannot be. Those before it stay.
  bool pin(std::size_t end) {
    const timer timing(pinning_seconds_);
    for (; pinned_end_ < end; ++pinned_end_) {
      const page_range& pages = plan_.ranges[pinned_end_];
      if (is_kept_[pinned_end_] == 0 && !pages_.pin(pages)) return false;
      bytes_ += pages.bytes();
      peak_bytes_ = std::max(peak_bytes_, bytes_);
    }
    return true;
  }
  /// Unpins the first ranges, up to `end`, as far as they are pinned.
  void unpin(std::size_t end) {
    const timer timing(unpinning_seconds_);
    for (; begin_ < std::min(end, pinned_end_); ++begin_) {
      if (is_kept_[begin_] == 0) pages_.unpin(plan_.ranges[begin_]);
      bytes_ -= plan_.ranges[begin_].bytes();
    }
  }
  /// What is pinned stays so, and is `kept`'s.
  void keep() {
    for (; begin_ < pinned_end_; ++begin_)
      if (is_kept_[begin_] == 0) kept_.push_back(plan_.ranges[begin_]);
  }

  /// Pinned bytes once the ranges up to `end` are.
  std::int64_t bytes_with(std::size_t end) const {
    std::int64_t bytes = bytes_;
    for (std::size_t i = pinned_end_; i < end; ++i) bytes += plan_.ranges[i].bytes();
    return bytes;
  }
  std::int64_t peak_bytes() const { return peak_bytes_; }
  double pinning_seconds() const { return pinning_seconds_; }
  double unpinning_seconds() const { return unpinning_seconds_; }

 private:
  /// Adds its lifetime to a sum.
  class timer {
   public:
    explicit timer(double& sum) : sum_(sum) {}
    timer(const timer&) = delete;
    timer& operator=(const timer&) = delete;
    ~timer() { sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

   private:
    double& sum_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  };

  static bool before(const page_range& a, const page_range& b) { return a.begin < b.begin; }

  Pages& pages_;
  const feed_plan& plan_;
  std::vector<page_range>& kept_;
  std::vector<std::uint8_t> is_kept_;  ///< per range
  std::size_t begin_ = 0;              ///< of what is pinned
  std::size_t pinned_end_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
  double pinning_seconds_ = 0;
  double unpinning_seconds_ = 0;
};

}  // namespace wreload::detail
