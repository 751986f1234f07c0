#pragma once
/// `feed_loads`: pieces of a plan as loads of an update.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../update/options.hpp"
#include "checkpoint.hpp"
#include "copy_runs.hpp"
#include "feed_options.hpp"
#include "feed_plan.hpp"

namespace wreload::detail {

/// One send: what an update is given, in which loads, and what is told of it.
template <class Update, class Progress>
class feed_loads {
 public:
  /// All must outlive it.
  feed_loads(Update& update, Progress& progress, std::span<const checkpoint_tensor> tensors, const feed_plan& plan,
             feed_report& told)
      : update_(update), progress_(progress), tensors_(tensors), plan_(plan), told_(told) {
    told.needed_bytes = done_.total_bytes = plan.needed_bytes;
    told.skipped_bytes = plan.skipped_bytes;
    done_.total_tensors = static_cast<std::int64_t>(tensors.size());
  }

  const feed_plan& plan() const { return plan_; }
  feed_report& told() { return told_; }
  bool is_open() const { return update_.is_open(); }
  /// An event behind all loads.
  event_ref flush() { return update_.flush(); }

  /// What goes first, in loads of some size. The bytes are copied, since their pages are being pinned or unpinned later.
  status load_first() {
    constexpr std::int64_t most_bytes = std::int64_t{4} << 20;
    const std::span<const feed_piece> all = plan_.first;
    std::vector<std::byte> copy;
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = begin;
      std::int64_t bytes = 0;
      for (; end < all.size() && bytes <= most_bytes; ++end) bytes += all[end].is_needed ? all[end].bytes() + 16 : 0;
      copy.resize(static_cast<std::size_t>(bytes));
      pieces_.clear();
      std::byte* to = copy.data();
      for (const feed_piece& each : all.subspan(begin, end - begin)) {
        add(each);
        if (!each.is_needed) continue;
        copy_rows({each.begin(), 0, each.rows, each.row_bytes, each.row_stride_bytes}, to);
        pieces_.back().tensor.data = to;
        pieces_.back().tensor.strides = {};
        to += (each.bytes() + 15) / 16 * 16;
        told_.first_bytes += each.bytes();
      }
      if (status refused = load(all.subspan(begin, end - begin), {}); !refused.ok()) return refused;
      begin = end;
    }
    return {};
  }

  /// Loads a batch from where its files are mapped.
  status load_mapped(const feed_batch& batch, memory_kind memory) {
    pieces_.clear();
    for (const feed_piece& each : plan_.pieces_of(batch)) {
      add(each);
      pieces_.back().tensor.memory = memory;
    }
    return load(plan_.pieces_of(batch), {});
  }

  /// Loads a batch from its copy.
  status load_copy(const feed_batch& batch, const std::byte* slot, memory_kind memory, event_ref ready) {
    pieces_.clear();
    for (const feed_piece& each : plan_.pieces_of(batch)) {
      add(each);
      pieces_.back().tensor.data = slot + each.slot_offset;
      pieces_.back().tensor.strides = {};
      pieces_.back().tensor.memory = memory;
    }
    return load(plan_.pieces_of(batch), ready);
  }

 private:
  void add(const feed_piece& each) {
    pieces_.push_back({.name = tensors_[each.tensor].name, .tensor = each.data, .part = each.part});
  }

  status load(std::span<const feed_piece> from, event_ref ready) {
    if (status refused = update_.load(pieces_, ready); !refused.ok()) return refused;
    ++told_.loads;
    for (const feed_piece& each : from) {
      done_.bytes += each.is_needed ? each.bytes() : 0;
      done_.tensors += each.is_last;
    }
    progress_(std::as_const(done_));
    return {};
  }

  Update& update_;
  Progress& progress_;
  std::span<const checkpoint_tensor> tensors_;
  const feed_plan& plan_;
  feed_report& told_;
  feed_progress done_ = {};
  std::vector<piece> pieces_ = {};
};

}  // namespace wreload::detail
