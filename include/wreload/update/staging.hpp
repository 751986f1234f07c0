#pragma once
/// `staging`: what has arrived aside, in checkpoint form, and the jobs that will land it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../core/on_use.hpp"
#include "admission.hpp"
#include "options.hpp"
#include "registry.hpp"
#include "staging_space.hpp"

namespace wreload::detail {

/// A rectangle that has arrived aside.
struct staged_part {
  landed_part what = {};
  land_job job = {};            ///< from `memory` to live storage
  std::byte* memory = nullptr;  ///< null: zeros for pads
  std::int64_t bytes = 0;
  std::int32_t wave = 0;        ///< of the same bytes the latest wave counts
  bool is_widened = false;      ///< kept in another dtype than it came in
};

/// Where a transport was allowed to write.
struct staged_grant {
  landed_part what = {};
  dtype type = dtype::none;
  std::byte* memory = nullptr;
  std::int64_t bytes = 0;
};

/// Parts per layer. Bytes keep their checkpoint dtype and order, dense; those of a tensor with a second name have the
/// runtime dtype, so that what comes under the other name can be compared with them. Under the model's lock.
template <class Use = on_use>
class basic_staging {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;
  using registry = basic_registry<dependent<on_use, Use>>;
  using admission = dependent<wreload::admission, Use>;

 public:
  basic_staging(const registry& records, memory_kind where)
      : records_(records), where_(where), parts_(records.layers.size()) {}

  staging_space& space() { return space_; }
  const staging_space& space() const { return space_; }

  /// Bytes that a job needs here.
  std::int64_t bytes_for(const land_job& job, const landed_part& what) const {
    return job.rows * job.cols * bytes_of(kept_as(job, what));
  }

  /// Turns a landing into a copy to `memory`, and remembers how to land that.
  void keep(land_job& job, const landed_part& what, std::byte* memory) {
    land_job later = job;
    job.to = kept_as(job, what);
    job.destination = memory;
    job.destination_row_stride_bytes = job.cols * bytes_of(job.to);
    job.map = unmapped;
    job.map_row = job.map_col = 0;
    const bool is_widened = job.to != job.from;
    point_at(later, memory, job.to);
    parts_of(what.landing).push_back({what, later, memory, bytes_for(later, what), wave_, is_widened});
  }

  /// Keeps the pads of a load that go aside; the others stay. They lie over some of the load's own bytes.
  template <class GoesLive>
  void place_pads(admission& work, GoesLive&& goes_live, std::ptrdiff_t offset) {
    if (work.pads.empty()) return;
    ++wave_;  // what is kept from now on goes over what was kept before
    std::size_t live = 0;
    for (std::size_t i = 0; i < work.pads.size(); ++i) {
      if (goes_live(work.padded[i])) {
        work.pads[live] = work.pads[i];
        work.pads[live++].destination += offset;
      } else {
        parts_of(work.padded[i]).push_back({{work.padded[i], {}, true}, work.pads[i], nullptr, 0, wave_});
      }
    }
    work.pads.resize(live);
  }

  /// Bytes that are aside are compared there.
  template <class GoesLive>
  void place_compares(admission& work, GoesLive&& goes_live, std::ptrdiff_t offset) const {
    vector<land_job> compares;
    vector<std::int32_t> groups;
    bool is_changed = offset != 0;
    for (std::size_t i = 0; i < work.compares.size(); ++i) {
      const std::int32_t landing = work.compared[i].landing;
      work.compares[i].destination += offset;
      const auto add = [&](const land_job& job) {
        compares.push_back(job);
        groups.push_back(work.compared_groups[i]);
      };
      if (goes_live(landing) || !holds(records_.layer_of(landing))) {
        add(work.compares[i]);
        continue;
      }
      is_changed = true;
      for_each_kept(work.compares[i], work.compared[i], add);
    }
    if (!is_changed) return;
    work.compares = static_cast<vector<land_job>&&>(compares);
    work.compared_groups = static_cast<vector<std::int32_t>&&>(groups);
  }

  /// Splits a comparison with live bytes into comparisons with what is kept of them; calls `visit(job)` for each.
  template <class Visit>
  void for_each_kept(const land_job& compare, const landed_part& what, Visit&& visit) const {
    const std::int32_t group = at(records_.landings, what.landing).twins;
    for (const staged_part& part : at(parts_, records_.layer_of(what.landing))) {
      if (part.memory == nullptr || at(records_.landings, part.what.landing).twins != group) continue;
      const rect both = intersect(part.what.part, what.part);
      if (both.empty()) continue;
      std::int64_t down = both.row_begin - what.part.row_begin, right = both.col_begin - what.part.col_begin;
      std::int64_t kept_down = both.row_begin - part.what.part.row_begin;
      std::int64_t kept_right = both.col_begin - part.what.part.col_begin;
      land_job job = compare;
      job.rows = both.rows();
      job.cols = both.cols();
      if (what.is_transposed) {
        std::swap(down, right);
        std::swap(kept_down, kept_right);
        std::swap(job.rows, job.cols);
      }
      job.source += down * job.source_row_stride_bytes + right * job.source_col_stride_bytes;
      job.destination_row_stride_bytes = part.job.source_row_stride_bytes;
      job.destination = part.memory + kept_down * job.destination_row_stride_bytes + kept_right * bytes_of(part.job.from);
      job.map = unmapped;
      job.map_row = job.map_col = 0;
      visit(job);
    }
  }

  /// Where a transport was allowed to write this box, if it lies here; else null.
  std::byte* granted(const landed_part& what, dtype type) const {
    for (const staged_grant& each : grants_)
      if (each.what.landing == what.landing && each.what.part == what.part && each.type == type) return each.memory;
    return nullptr;
  }
  /// `memory` null: the box's memory is not kept here.
  void note_grant(const landed_part& what, dtype type, std::byte* memory, std::int64_t bytes) {
    for (const staged_grant& each : grants_)
      if (each.what.landing == what.landing && each.what.part == what.part) return;
    grants_.push_back({what, type, memory, bytes});
  }
  /// Whether a part of the box was granted here, but as another box.
  bool overlaps_grant(const landed_part& what, dtype type) const {
    for (const staged_grant& each : grants_)
      if (each.memory != nullptr && each.what.landing == what.landing && !intersect(each.what.part, what.part).empty() &&
          !(each.what.part == what.part && each.type == type))
        return true;
    return false;
  }

  /// Whether every element of an adopted job was granted, in its dtype.
  bool was_granted(const land_job& job, const landed_part& what) const {
    if (what.shared) return false;
    std::int64_t elements = 0;
    for (const staged_grant& each : grants_)
      if (lies_in(each, job, what)) elements += each.what.part.elements();
    return elements == what.part.elements();
  }
  /// Grants become parts. Requires: `was_granted`.
  void adopt(const land_job& job, const landed_part& what) {
    std::erase_if(grants_, [&](const staged_grant& each) {
      if (!lies_in(each, job, what)) return false;
      land_job later = job;
      later.rows = each.what.part.rows();
      later.cols = each.what.part.cols();
      later.destination += (each.what.part.row_begin - what.part.row_begin) * job.destination_row_stride_bytes +
                           (each.what.part.col_begin - what.part.col_begin) * bytes_of(job.to);
      point_at(later, each.memory, each.type);
      parts_of(what.landing).push_back({each.what, later, each.memory, each.bytes, wave_});
      return true;
    });
  }

  /// Forgets the parts of a landing. What came for several landings at once stays, and lands before what comes now.
  void forget(std::int32_t landing) {
    ++wave_;
    drop(parts_of(landing),
         [landing](const staged_part& part) { return part.what.landing == landing && !part.what.shared; });
  }

  bool holds(std::int32_t layer) const { return !at(parts_, layer).empty(); }
  std::span<const staged_part> parts(std::int32_t layer) const { return at(parts_, layer); }

  /// Calls `land(jobs)` for the parts of the layers that `lands(part)`, wave by wave: what one call lands does not overlap.
  template <class Lands, class Land>
  status for_each_wave(std::span<const std::int32_t> layers, Lands&& lands, Land&& land) const {
    vector<const staged_part*> all;
    for (const std::int32_t layer : layers)
      for (const staged_part& part : at(parts_, layer))
        if (lands(part)) all.push_back(&part);
    std::stable_sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->wave < b->wave; });
    vector<land_job> jobs;
    for (std::size_t i = 0; i < all.size(); ++i) {
      jobs.push_back(all[i]->job);
      if (i + 1 < all.size() && all[i + 1]->wave == all[i]->wave) continue;
      if (status failed = land(std::span<const land_job>(jobs)); !failed.ok()) return failed;
      jobs.clear();
    }
    return {};
  }

  /// Gives a landed layer's memory back; the caller sees to it that who takes it next writes later.
  void release(std::int32_t layer) {
    drop(at(parts_, layer), [](const staged_part&) { return true; });
  }

 private:
  vector<staged_part>& parts_of(std::int32_t landing) { return at(parts_, records_.layer_of(landing)); }

  dtype kept_as(const land_job& job, const landed_part& what) const {
    return at(records_.landings, what.landing).twins == no_index ? job.from : job.to;
  }

  void point_at(land_job& job, const std::byte* memory, dtype kept) const {
    job.source = memory;
    job.from = kept;
    job.source_col_stride_bytes = bytes_of(kept);
    job.source_row_stride_bytes = job.cols * bytes_of(kept);
    job.memory = where_;
  }

  static bool lies_in(const staged_grant& grant, const land_job& job, const landed_part& what) {
    return grant.what.landing == what.landing && grant.type == job.from &&
           intersect(grant.what.part, what.part) == grant.what.part;
  }

  template <class Where>
  void drop(vector<staged_part>& parts, Where&& where) {
    std::erase_if(parts, [&](const staged_part& part) {
      if (where(part) && part.memory != nullptr) space_.give_back(part.memory, part.bytes);
      return where(part);
    });
  }

  const registry& records_;
  memory_kind where_;
  staging_space space_ = {};
  vector<vector<staged_part>> parts_;  ///< per layer
  vector<staged_grant> grants_ = {};
  std::int32_t wave_ = 0;
};

using staging = basic_staging<>;

}  // namespace wreload::detail
