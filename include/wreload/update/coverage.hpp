#pragma once
/// `coverage`: which rectangles of a matrix have arrived.

#include <cstdint>
#include <map>
#include <vector>

#include "../core/box.hpp"
#include "../core/on_use.hpp"

namespace wreload {

/// A set of matrix elements, kept as disjoint rectangles. A single rectangle (a whole tensor, rows in order) needs no
/// heap; other sets are bands of rows with the same columns, merged where they can be.
template <class Use = on_use>
class basic_coverage {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;

 public:
  bool empty() const { return single_.empty() && bands_.empty(); }
  /// Whether the set is this rectangle, which is not empty.
  bool is(const rect& part) const { return single_ == part && !part.empty(); }

  void clear() {
    single_ = {};
    bands_.clear();
  }

  /// Whether any element of `part` is in the set.
  bool overlaps(const rect& part) const {
    bool found = false;
    for_each_covered(part, [&](const rect&) { found = true; });
    return found;
  }

  /// Whether every element of `part` is in the set.
  bool contains(const rect& part) const {
    bool whole = true;
    for_each_missing(part, [&](const rect&) { whole = false; });
    return whole;
  }

  /// Adds a rectangle. Requires: it does not overlap the set.
  void insert(const rect& part) {
    if (part.empty()) return;
    if (bands_.empty() && (single_.empty() || joins(single_, part))) {
      single_ = single_.empty() ? part : hull(single_, part);
      return;
    }
    spill();
    split(part.row_begin);
    split(part.row_end);
    std::int64_t row = part.row_begin;
    for (auto at = bands_.lower_bound(part.row_begin); row < part.row_end;) {
      if (at == bands_.end() || at->first > row) {
        const std::int64_t end = at == bands_.end() ? part.row_end : std::min(at->first, part.row_end);
        bands_.emplace_hint(at, row, band{end, {{part.col_begin, part.col_end}}});
        row = end;
      } else {
        add(at->second.cols, {part.col_begin, part.col_end});
        row = at->second.row_end;
        ++at;
      }
    }
    merge(part);
  }

  /// Takes a rectangle out again. Requires: it is contained.
  void erase(const rect& part) {
    if (part.empty()) return;
    if (single_ == part) return clear();
    spill();
    split(part.row_begin);
    split(part.row_end);
    for (auto at = bands_.lower_bound(part.row_begin); at != bands_.end() && at->first < part.row_end;) {
      subtract(at->second.cols, {part.col_begin, part.col_end});
      at = at->second.cols.empty() ? bands_.erase(at) : std::next(at);
    }
    merge(part);
  }

  /// Calls `visit(rect)` for the parts of `part` that are in the set, rows ascending.
  template <class Visit>
  void for_each_covered(const rect& part, Visit&& visit) const {
    walk(part, visit, [](const rect&) {});
  }

  /// Calls `visit(rect)` for the parts of `part` that are not in the set, rows ascending.
  template <class Visit>
  void for_each_missing(const rect& part, Visit&& visit) const {
    walk(part, [](const rect&) {}, visit);
  }

 private:
  struct interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    friend bool operator==(const interval&, const interval&) = default;
  };
  struct band {
    std::int64_t row_end = 0;
    vector<interval> cols = {};  // sorted, neither overlapping nor touching
  };
  using band_map = std::map<std::int64_t, band>;  // by first row

  static bool joins(const rect& a, const rect& b) {
    const bool same_cols = a.col_begin == b.col_begin && a.col_end == b.col_end;
    const bool same_rows = a.row_begin == b.row_begin && a.row_end == b.row_end;
    return (same_cols && (a.row_end == b.row_begin || b.row_end == a.row_begin)) ||
           (same_rows && (a.col_end == b.col_begin || b.col_end == a.col_begin));
  }
  static rect hull(const rect& a, const rect& b) {
    return {std::min(a.row_begin, b.row_begin), std::max(a.row_end, b.row_end), std::min(a.col_begin, b.col_begin),
            std::max(a.col_end, b.col_end)};
  }

  /// From the single rectangle to bands.
  void spill() {
    if (single_.empty()) return;
    bands_.emplace(single_.row_begin, band{single_.row_end, {{single_.col_begin, single_.col_end}}});
    single_ = {};
  }

  /// The first band that reaches beyond `row`.
  typename band_map::const_iterator band_at(std::int64_t row) const {
    auto at = bands_.upper_bound(row);
    if (at != bands_.begin() && std::prev(at)->second.row_end > row) --at;
    return at;
  }

  /// Makes `row` a border between bands.
  void split(std::int64_t row) {
    auto at = bands_.lower_bound(row);
    if (at == bands_.begin() || std::prev(at)->second.row_end <= row) return;
    band& upper = std::prev(at)->second;
    bands_.emplace_hint(at, row, upper);
    upper.row_end = row;
  }

  /// Joins equal neighbours around `part`, and goes back to a single rectangle where one is left.
  void merge(const rect& part) {
    auto at = bands_.lower_bound(part.row_begin);
    if (at != bands_.begin()) --at;
    while (at != bands_.end() && at->first <= part.row_end) {
      const auto next = std::next(at);
      if (next != bands_.end() && at->second.row_end == next->first && at->second.cols == next->second.cols) {
        at->second.row_end = next->second.row_end;
        bands_.erase(next);
      } else {
        at = next;
      }
    }
    if (bands_.size() != 1 || bands_.begin()->second.cols.size() != 1) return;
    const auto& [row, last] = *bands_.begin();
    single_ = {row, last.row_end, last.cols[0].begin, last.cols[0].end};
    bands_.clear();
  }

  static void add(vector<interval>& cols, interval part) {
    std::size_t at = 0;
    while (at < cols.size() && cols[at].end < part.begin) ++at;
    std::size_t last = at;
    for (; last < cols.size() && cols[last].begin <= part.end; ++last)
      part = {std::min(part.begin, cols[last].begin), std::max(part.end, cols[last].end)};
    const auto begin = cols.begin() + static_cast<std::ptrdiff_t>(at);
    cols.insert(cols.erase(begin, cols.begin() + static_cast<std::ptrdiff_t>(last)), part);
  }

  static void subtract(vector<interval>& cols, interval part) {
    vector<interval> left;
    for (const interval& old : cols) {
      if (old.begin < std::min(old.end, part.begin)) left.push_back({old.begin, std::min(old.end, part.begin)});
      if (std::max(old.begin, part.end) < old.end) left.push_back({std::max(old.begin, part.end), old.end});
    }
    cols.swap(left);
  }

  template <class Covered, class Missing>
  void walk(const rect& part, Covered&& covered, Missing&& missing) const {
    if (part.empty()) return;
    std::int64_t row = part.row_begin;
    const auto gap_until = [&](std::int64_t end) {
      if (row < end) missing(rect{row, end, part.col_begin, part.col_end});
    };
    const auto walk_band = [&](std::int64_t begin, std::int64_t end, const interval* cols, std::size_t count) {
      begin = std::max(begin, part.row_begin);
      end = std::min(end, part.row_end);
      if (begin >= end) return;
      gap_until(begin);
      std::int64_t col = part.col_begin;
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t first = std::max(cols[i].begin, part.col_begin);
        const std::int64_t last = std::min(cols[i].end, part.col_end);
        if (first >= last) continue;
        if (col < first) missing(rect{begin, end, col, first});
        covered(rect{begin, end, first, last});
        col = last;
      }
      if (col < part.col_end) missing(rect{begin, end, col, part.col_end});
      row = end;
    };
    if (!single_.empty()) {
      const interval cols{single_.col_begin, single_.col_end};
      walk_band(single_.row_begin, single_.row_end, &cols, 1);
    }
    if (!bands_.empty())
      for (auto at = band_at(part.row_begin); at != bands_.end() && at->first < part.row_end; ++at)
        walk_band(at->first, at->second.row_end, at->second.cols.data(), at->second.cols.size());
    gap_until(part.row_end);
  }

  rect single_ = {};
  band_map bands_ = {};
};

using coverage = basic_coverage<>;

}  // namespace wreload
