#pragma once
/// `arrivals`: which parts of the landings of a model have arrived, in which form.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/box.hpp"
#include "../core/on_use.hpp"
#include "../core/prefetch.hpp"
#include "coverage.hpp"

namespace wreload {

/// Per landing: what has come in the stored form of a view that converts, and what in the form that runs. A landing of
/// which nothing or all has come in one piece takes 4 bytes; the rectangles of the others are kept beside.
///
/// `needed` is always the whole landing, in checkpoint coordinates, and never empty.
template <class Use = on_use>
class basic_arrivals {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;
  using coverage = basic_coverage<Use>;

 public:
  /// What has come of one landing in one form; valid until the next change.
  class form_view {
   public:
    form_view(const rect& whole, const coverage* parts) : whole_(whole), parts_(parts) {}

    bool empty() const { return parts_ == nullptr ? whole_.empty() : parts_->empty(); }
    bool overlaps(const rect& part) const {
      return parts_ == nullptr ? !intersect(whole_, part).empty() : parts_->overlaps(part);
    }
    bool contains(const rect& part) const { return parts_ == nullptr ? whole_.contains(part) : parts_->contains(part); }

    /// Calls `visit(rect)` for what has come of a part, rows ascending.
    template <class Visit>
    void for_each_covered(const rect& part, Visit&& visit) const {
      if (parts_ != nullptr) return parts_->for_each_covered(part, visit);
      if (const rect common = intersect(whole_, part); !common.empty()) visit(common);
    }
    /// The same for what has not.
    template <class Visit>
    void for_each_missing(const rect& part, Visit&& visit) const {
      if (parts_ != nullptr) return parts_->for_each_missing(part, visit);
      if (whole_.contains(part)) return;
      coverage one;
      one.insert(whole_);
      one.for_each_missing(part, visit);
    }

   private:
    rect whole_;
    const coverage* parts_;  ///< null: `whole_`, or nothing where that is empty
  };

  void resize(std::size_t landings) { state_.resize(landings, nothing); }

  /// Forgets everything and returns what it took from the heap.
  void clear() {
    std::fill(state_.begin(), state_.end(), nothing);
    vector<parts>().swap(parts_);
    vector<std::int32_t>().swap(free_);
  }
  /// Forgets what has come of a landing.
  void clear(std::int32_t l) {
    std::int32_t& state = state_[static_cast<std::size_t>(l)];
    if (state >= 0) {
      parts_[static_cast<std::size_t>(state)] = {};
      free_.push_back(state);
    }
    state = nothing;
  }

  void prefetch(std::int32_t l) const { wreload::prefetch(&state_[static_cast<std::size_t>(l)]); }
  bool empty(std::int32_t l) const { return state_[static_cast<std::size_t>(l)] == nothing; }
  /// All has come in one form.
  bool is_whole(std::int32_t l) const {
    const std::int32_t state = state_[static_cast<std::size_t>(l)];
    return state == all_stored || state == all_runtime;
  }
  form_view form(std::int32_t l, bool stored, const rect& needed) const {
    const std::int32_t state = state_[static_cast<std::size_t>(l)];
    if (state >= 0) return {{}, &of(parts_[static_cast<std::size_t>(state)], stored)};
    return {state == all(stored) ? needed : rect{}, nullptr};
  }

  /// Requires: the part lies in `needed` and has not come in this form.
  void insert(std::int32_t l, bool stored, const rect& part, const rect& needed) {
    std::int32_t& state = state_[static_cast<std::size_t>(l)];
    if (part.empty()) return;
    if (state == nothing && part == needed) {
      state = all(stored);
      return;
    }
    parts& both = spill(state, needed);
    of(both, stored).insert(part);
    settle(l, needed);
  }
  /// Requires: the part has come in this form.
  void erase(std::int32_t l, bool stored, const rect& part, const rect& needed) {
    std::int32_t& state = state_[static_cast<std::size_t>(l)];
    if (part.empty()) return;
    if (state < 0 && part == needed) {
      state = nothing;
      return;
    }
    of(spill(state, needed), stored).erase(part);
    settle(l, needed);
  }

 private:
  // From 0 on: index into parts_.
  static constexpr std::int32_t nothing = -1;
  static constexpr std::int32_t all_runtime = -2;
  static constexpr std::int32_t all_stored = -3;

  struct parts {
    coverage stored = {};
    coverage runtime = {};
  };

  static constexpr std::int32_t all(bool stored) { return stored ? all_stored : all_runtime; }
  static coverage& of(parts& both, bool stored) { return stored ? both.stored : both.runtime; }
  static const coverage& of(const parts& both, bool stored) { return stored ? both.stored : both.runtime; }

  /// Where the rectangles of a landing are kept from here on.
  parts& spill(std::int32_t& state, const rect& needed) {
    if (state >= 0) return parts_[static_cast<std::size_t>(state)];
    const std::int32_t before = state;
    if (free_.empty()) {
      state = static_cast<std::int32_t>(parts_.size());
      parts_.emplace_back();
    } else {
      state = free_.back();
      free_.pop_back();
    }
    parts& both = parts_[static_cast<std::size_t>(state)];
    if (before != nothing) of(both, before == all_stored).insert(needed);
    return both;
  }

  /// Back to 4 bytes where nothing or all has come.
  void settle(std::int32_t l, const rect& needed) {
    const parts& both = parts_[static_cast<std::size_t>(state_[static_cast<std::size_t>(l)])];
    std::int32_t now = nothing;
    if (both.runtime.is(needed) && both.stored.empty()) now = all_runtime;
    else if (both.stored.is(needed) && both.runtime.empty()) now = all_stored;
    else if (!both.runtime.empty() || !both.stored.empty()) return;
    clear(l);
    state_[static_cast<std::size_t>(l)] = now;
  }

  vector<std::int32_t> state_ = {};  ///< per landing
  vector<parts> parts_ = {};
  vector<std::int32_t> free_ = {};   ///< of parts_
};

}  // namespace wreload
