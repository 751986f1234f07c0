#pragma once
/// `plan_follower`: how an open update stands with the model's plan. It follows it, or records the next one, or neither.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "../core/on_use.hpp"
#include "bucket.hpp"
#include "intake.hpp"
#include "model_core.hpp"
#include "post_load.hpp"

namespace wreload::detail {

/// An update whose first load is a bucket of the plan follows it: each bucket of the plan that comes is one bit here, and
/// the ledger knows nothing of it. With all of them the update is whole, since the one that made the plan was. At the first
/// difference it leaves the plan: what has come is entered in the ledger, and from there on it is an update like any other.
///
/// An update in complete scope that lands at once (no undo image, nothing aside, no digests) records what its buckets
/// do, until something comes in another way, or from memory that no table can name. A success makes that the model's
/// plan; an update that was not recorded leaves the plan that there is. Under the model's lock, but for `replay`.
template <executor Executor>
class plan_follower {
  template <class T>
  using vector = dependent<std::vector<T>, Executor>;
  using planned = planned_bucket<Executor>;

 public:
  plan_follower(model_core<Executor>& core, update_mode mode, bool may_record)
      : core_(core), mode_(mode), mark_(core.run.kept_bytes()) {
    if (!may_record || !core.run.keeps_tables()) return;
    next_.emplace();
    may_follow_ = core.plan && core.plan->mode == mode && core.state == model_state::live;
    if (may_follow_) has_come_.assign(core.plan->buckets.size(), 0);
  }

  bool follows() const { return follows_; }
  bool has_all() const { return follows_ && count_ == has_come_.size(); }
  std::int64_t not_sent() const { return core_.plan->not_sent; }
  const vector<planned_step<Executor>>& recorded_steps() const { return core_.plan->steps; }

  /// The bucket of the plan that this one is, marked as come; null at any difference.
  const planned* follow(const bucket& from, std::uint64_t manifest, event_ref ready) {
    if (!may_follow_ && !follows_) return nullptr;
    vector<planned>& all = core_.plan->buckets;
    const auto found = std::lower_bound(all.begin(), all.end(), manifest,
                                        [](const planned& each, std::uint64_t of) { return each.manifest < of; });
    if (found == all.end() || found->manifest != manifest) return nullptr;
    std::uint8_t& has_come = has_come_[static_cast<std::size_t>(found - all.begin())];
    if (has_come != 0 || !is_like(*found, from, ready)) return nullptr;
    has_come = 1;
    ++count_;
    follows_ = true;
    may_follow_ = false;
    return &*found;
  }

  /// Enqueues a bucket of the plan. Not under the lock.
  status replay(typename Executor::lane& lane, const planned& known, const bucket& from, event_ref ready) {
    if (ready.handle != nullptr)
      if (status failed = core_.run.wait_for(lane, ready); !failed.ok()) return failed;
    return core_.run.replay(lane, known.table, shift(known, from));
  }

  /// What the update converts and touches in the end, as it was for the plan. Requires: `has_all`.
  void conclude(report& done, vector<std::uint8_t>& touched) const {
    const update_plan<Executor>& plan = *core_.plan;
    for (const std::int32_t layer : plan.layers) at(touched, layer) = 1;
    done.converted_rows = plan.converted_rows;
    done.fused_rows = plan.fused_rows;
  }

  /// The update is like any other from here on: enters what has come. `touched`: per layer.
  void leave(post_load<Executor>& converted, report& counted, vector<std::uint8_t>& touched) {
    may_follow_ = false;
    if (!follows_) return;
    load_tally().set(counted);
    for (std::size_t i = 0; i < has_come_.size(); ++i) {
      if (has_come_[i] == 0) continue;
      const planned& each = core_.plan->buckets[i];
      core_.books.enter(each.claims);
      for (counted_piece part : each.counted) {
        if (part.name != no_index) part.is_first = core_.books.enter(core_.records.names[part.name]);
        count(part, counted);
      }
      for (const std::int32_t landing : each.fused) converted.note_fused(landing);
      for (const claim& part : each.claims) at(touched, core_.records.layer_of(part.landing)) = 1;
      if (next_) next_->buckets.push_back(each);
    }
    follows_ = false;  // last: an exception before it leaves an update that is given up
  }
  /// The update will not succeed: enters only that what has come was written, for which it takes nothing from the heap.
  void give_up() {
    next_.reset();
    may_follow_ = false;
    if (!std::exchange(follows_, false)) return;
    for (std::size_t i = 0; i < has_come_.size(); ++i)
      if (has_come_[i] != 0) core_.books.note_written(core_.plan->buckets[i].claims);
  }

  bool records() const { return next_.has_value(); }
  void stop_recording() { next_.reset(); }
  /// Where `commit` is recorded; null: it is not.
  vector<planned_step<Executor>>* steps() { return next_ && !follows_ ? &next_->steps : nullptr; }

  /// Begins to record a bucket whose load was placed, but for its table. Stops recording where it cannot be done again.
  void begin(planned& into, const bucket& from, std::uint64_t manifest, const accepted& load, bool shares_bytes) {
    if (!load.work.pads.empty() || !load.work.compares.empty() || host_reads(load.work.lands)) return stop_recording();
    into.manifest = manifest;
    into.address = reinterpret_cast<std::uintptr_t>(from.data);
    into.bytes = from.bytes;
    into.pieces = from.pieces.size();
    into.memory = from.pieces.empty() ? memory_kind::pageable : from.pieces.front().tensor.memory;
    for (const piece& each : from.pieces) into.any_pageable |= each.tensor.memory == memory_kind::pageable;
    const auto is_of_landing = [](const claim& part) { return part.landing != no_index; };
    const auto& claims = load.work.claims;
    into.claims.reserve(static_cast<std::size_t>(std::count_if(claims.begin(), claims.end(), is_of_landing)));
    std::copy_if(claims.begin(), claims.end(), std::back_inserter(into.claims), is_of_landing);
    into.counted = load.counted;
    into.shares_bytes = shares_bytes;
    into.writes = !load.work.lands.empty() || !into.fused.empty();
    report tally;
    for (const counted_piece& part : load.counted) count(part, tally);
    into.tally = load_tally(tally);
  }
  /// Takes a bucket whose table is filled.
  void add(planned&& bucket) {
    if (!next_) return;
    if (bucket.table.whole) return next_->buckets.push_back(static_cast<planned&&>(bucket));
    has_no_room_ = true;
    stop_recording();
  }

  /// Adds to what is recorded which layers the update has written. Per layer.
  void note_layers(const vector<std::uint8_t>& touched) {
    if (!next_ || follows_) return;
    for (std::size_t i = 0; i < touched.size(); ++i)
      if (touched[i] != 0) next_->layers.push_back(static_cast<std::int32_t>(i));
  }
  /// After a success that did not follow the plan: what was recorded takes its place. Takes nothing from the heap.
  void seal(const report& done) {
    if (next_) {
      auto& all = next_->buckets;
      std::sort(all.begin(), all.end(), [](const planned& a, const planned& b) { return a.manifest < b.manifest; });
      const auto same = [](const planned& a, const planned& b) { return a.manifest == b.manifest; };
      if (all.empty() || std::adjacent_find(all.begin(), all.end(), same) != all.end()) next_.reset();
    }
    if (next_)
      for (const planned_step<Executor>& step : next_->steps) has_no_room_ |= !step.table.whole;
    if (has_no_room_) {  // what the plan has taken goes to the next one
      core_.plan.reset();
      core_.run.drop_kept(0);
    } else if (!next_) {
      core_.run.drop_kept(mark_);
    } else {
      std::erase_if(next_->steps, [](const auto& step) { return step.table.empty() && step.launched == no_index; });
      next_->mode = mode_;
      next_->not_sent = done.not_sent;
      next_->converted_rows = done.converted_rows;
      next_->fused_rows = done.fused_rows;
      core_.plan = std::move(next_);
    }
    next_.reset();
  }

  /// After an end without success.
  void drop() {
    next_.reset();
    core_.run.drop_kept(mark_);
  }

 private:
  /// Whether the calling thread reads one of the sources for the executor, which keeps no table of that.
  static bool host_reads(const vector<land_job>& lands) {
    const auto is_pageable = [](const land_job& job) { return job.memory == memory_kind::pageable; };
    return !Executor::converts_from(memory_kind::pageable) && std::any_of(lands.begin(), lands.end(), is_pageable);
  }

  /// What a recorded task assumes of its source: no path reads more than 16 bytes at a time.
  static constexpr std::ptrdiff_t alignment = 16;

  /// How far a bucket lies from where it was when it was recorded.
  static std::ptrdiff_t shift(const planned& known, const bucket& from) {
    return static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(from.data) - known.address);
  }

  static bool is_like(const planned& known, const bucket& from, event_ref ready) {
    const bool is_read_at_once = known.any_pageable && ready.handle != nullptr;
    return known.bytes == from.bytes && known.pieces == from.pieces.size() && !is_read_at_once &&
           (from.pieces.empty() || from.pieces.front().tensor.memory == known.memory) &&
           (from.data != nullptr || known.address == 0) && shift(known, from) % alignment == 0;
  }

  model_core<Executor>& core_;
  update_mode mode_;
  std::int64_t mark_;                              ///< what tables had taken at `start`
  vector<std::uint8_t> has_come_ = {};             ///< per bucket of the plan
  std::size_t count_ = 0;                          ///< of those
  std::optional<update_plan<Executor>> next_ = {};  ///< that is being recorded
  bool may_follow_ = false;                        ///< nothing has come yet
  bool follows_ = false;
  bool has_no_room_ = false;
};

}  // namespace wreload::detail
