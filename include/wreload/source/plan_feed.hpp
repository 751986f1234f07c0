#pragma once
/// `plan_feed`: from a model's landings and a checkpoint's tensors to a plan.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "../update/registry.hpp"
#include "bucket.hpp"
#include "checkpoint.hpp"
#include "feed_plan.hpp"

namespace wreload {

namespace detail {

class feed_planner {
 public:
  feed_planner(const registry& records, std::int64_t window_bytes) : records_(records), window_bytes_(window_bytes) {
    plan_.slot_bytes = window_bytes + 2 * slot_alignment;
  }

  feed_plan make(std::span<const checkpoint_tensor> tensors) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return tensors[a].file != tensors[b].file ? tensors[a].file < tensors[b].file
                                                : tensors[a].offset_bytes < tensors[b].offset_bytes;
    });
    for (const std::size_t i : order) add(i, tensors[i]);
    std::stable_partition(plan_.first.begin(), plan_.first.end(),
                          [](const feed_piece& each) { return !each.is_needed; });
    return std::move(plan_);
  }

 private:
  struct row_range {
    std::int64_t begin = 0, end = 0;
  };

  void add(std::size_t index, const checkpoint_tensor& tensor) {
    const std::int64_t before = plan_.needed_bytes;
    const std::int32_t id = records_.names.find(tensor.name);
    const source_record* source = id == no_index ? nullptr : &at(records_.sources, records_.names[id].source);
    const bool has_bytes = source != nullptr && tensor.tensor.bytes() > 0;
    if (!has_bytes || source->landings.empty()) {
      plan_.first.push_back({.tensor = index, .data = tensor.tensor, .is_needed = false});
    } else if (const bool is_accepted = source->accepted.contains(tensor.tensor.type);
               !is_accepted || !(source->extents == tensor.tensor.extents)) {
      plan_.first.push_back(flat({index, {}, tensor.tensor}));
      // One element may come in another shape; all else is refused by the load.
      plan_.first.back().is_needed =
          is_accepted && source->extents.elements() == 1 && tensor.tensor.extents.elements() == 1;
      plan_.needed_bytes += plan_.first.back().is_needed ? tensor.tensor.bytes() : 0;
    } else {
      std::vector<feed_piece>& to = is_small_scale(*source, tensor.tensor) ? plan_.first : plan_.pieces;
      const std::size_t first = to.size();
      for_each_box(*source, [&](const box& part) { cut(index, view(tensor.tensor, part), part, to); });
      for (std::size_t i = first; i < to.size(); ++i) {
        to[i].is_last = i + 1 == to.size();
        plan_.needed_bytes += to[i].bytes();
        if (&to == &plan_.pieces) place(i, tensor);
      }
    }
    plan_.skipped_bytes += tensor.tensor.bytes() - (plan_.needed_bytes - before);
  }

  bool is_small_scale(const source_record& source, const tensor_ref& tensor) const {
    if (tensor.bytes() > small_bytes) return false;
    for (const std::int32_t l : source.landings) {
      const std::int32_t weight = at(records_.landings, l).weight;
      if (weight != no_index && at(records_.params, at(records_.landings, weight).param).plan.spec.converts())
        return true;
    }
    return false;
  }

  /// Calls `visit(box)` for disjoint boxes that cover what the landings need; each is rows of equal length.
  template <class Visit>
  void for_each_box(const source_record& source, Visit&& visit) const {
    std::vector<row_range> rows;
    rect hull = at(records_.landings, source.landings[0]).needed;
    for (const std::int32_t l : source.landings) {
      const rect& needed = at(records_.landings, l).needed;
      rows.push_back({needed.row_begin, needed.row_end});
      hull.col_begin = std::min(hull.col_begin, needed.col_begin);
      hull.col_end = std::max(hull.col_end, needed.col_end);
    }
    std::sort(rows.begin(), rows.end(), [](const row_range& a, const row_range& b) { return a.begin < b.begin; });
    std::size_t kept = 0;
    for (std::size_t i = 1; i < rows.size(); ++i) {
      if (rows[i].begin <= rows[kept].end)
        rows[kept].end = std::max(rows[kept].end, rows[i].end);
      else
        rows[++kept] = rows[i];
    }
    rows.resize(kept + 1);
    for (const row_range& each : rows)
      source.bundled ? for_each_expert_box(source.extents, each, hull, visit)
                     : visit(box_of(source.extents, each, hull));
  }

  static box box_of(const shape& extents, const row_range& rows, const rect& hull) {
    if (extents.rank() == 0) return {};
    box part = box::rows(extents, rows.begin, rows.end);
    if (extents.rank() == 1) return part;
    const std::int64_t inner = extents.cols() / extents[1];
    if (hull.col_begin % inner != 0 || hull.col_end % inner != 0) return part;  // whole rows
    part.offset[1] = hull.col_begin / inner;
    part.extent[1] = hull.cols() / inner;
    return part;
  }

  template <class Visit>
  static void for_each_expert_box(const shape& extents, const row_range& rows, const rect& hull, Visit& visit) {
    const std::int64_t each = extents[1];
    if (rows.begin % each == 0 && rows.end % each == 0 && hull.cols() == extents[2]) {
      visit(box::rows(extents, rows.begin / each, rows.end / each));
      return;
    }
    for (std::int64_t row = rows.begin; row < rows.end;) {
      const std::int64_t expert = row / each;
      const std::int64_t end = std::min(rows.end, (expert + 1) * each);
      visit(box({expert, row - expert * each, hull.col_begin}, {1, end - row, hull.cols()}));
      row = end;
    }
  }

  /// The elements of a box where they lie.
  static tensor_ref view(const tensor_ref& whole, const box& part) {
    if (part.whole) return whole;
    tensor_ref seen = whole;
    seen.extents = part.extent;
    seen.strides = whole.extents;
    std::int64_t stride = 1, offset = 0;
    for (int dim = whole.extents.rank() - 1; dim >= 0; --dim) {
      seen.strides[dim] = stride;
      offset += part.offset[dim] * stride;
      stride *= whole.extents[dim];
    }
    seen.data = static_cast<const std::byte*>(whole.data) + offset * bytes_of(whole.type);
    return seen;
  }

  /// Cuts a view between rows, or inside a row, so that no piece spans more than a window.
  void cut(std::size_t index, const tensor_ref& seen, const box& part, std::vector<feed_piece>& to) const {
    const feed_piece all = flat({index, part, seen});
    const std::int64_t span = all.end() - all.begin();
    if (span <= window_bytes_) {
      to.push_back(all);
      return;
    }
    const double share = static_cast<double>(all.bytes()) / static_cast<double>(span);
    const auto most = std::max<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(window_bytes_) * share), 1);
    (void)for_each_bucket({&seen, 1}, most, [&](std::span<const bucket_piece> bucket) {
      for (const bucket_piece& each : bucket) {
        box inside = each.part;
        for (int dim = 0; dim < inside.offset.rank() && !part.whole; ++dim) inside.offset[dim] += part.offset[dim];
        to.push_back(flat({index, inside, each.data}));
      }
    });
  }

  /// Fills in rows and strides in bytes; dense data loses its strides.
  static feed_piece flat(feed_piece piece) {
    const std::int64_t element = bytes_of(piece.data.type);
    piece.row_bytes = piece.row_stride_bytes = piece.data.bytes();
    if (piece.data.row_major()) return piece;
    std::int64_t run = 1;
    int dim = piece.data.extents.rank() - 1;
    for (; dim >= 0; --dim) {
      if (piece.data.extents[dim] != 1 && piece.data.strides[dim] != run) break;
      run *= piece.data.extents[dim];
    }
    if (dim < 0) {
      piece.data.strides = {};
      return piece;
    }
    piece.rows = piece.data.extents[dim];  // outer dims have one index: see `for_each_box`
    piece.row_bytes = run * element;
    piece.row_stride_bytes = piece.data.strides[dim] * element;
    return piece;
  }

  /// Gives a piece its batch, its place in the batch's copy, and its pages.
  void place(std::size_t index, const checkpoint_tensor& tensor) {
    feed_piece& piece = plan_.pieces[index];
    const bool is_new = plan_.batches.empty() || !fits_behind(piece, index, tensor.file);
    if (is_new) {
      piece.slot_offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(piece.begin()) % slot_alignment);
      plan_.batches.push_back({.first_piece = index, .own_range = plan_.ranges.size()});
    }
    feed_batch& batch = plan_.batches.back();
    cover({page_floor(piece.begin()), page_ceil(piece.end())}, tensor.file);
    batch.end_range = plan_.ranges.size();
    if (is_new)
      for (batch.first_range = batch.end_range - 1; batch.first_range > 0; --batch.first_range)
        if (const page_range& pages = plan_.ranges[batch.first_range];
            pages.begin <= piece.begin() && piece.begin() < pages.end)
          break;
    ++batch.piece_count;
    batch.bytes += piece.bytes();
    batch.is_shared = batch.is_shared && tensor.is_shared;
    last_file_ = tensor.file;
  }

  /// Whether the piece still has room behind the last one, whose batch it then joins.
  bool fits_behind(feed_piece& piece, std::size_t index, int file) const {
    const feed_piece& last = plan_.pieces[index - 1];
    const std::int64_t gap = piece.begin() - last.end();
    if (file == last_file_ && piece.rows == 1 && last.rows == 1 && gap >= 0 && gap <= copied_gap_bytes) {
      piece.slot_offset = last.slot_offset + (piece.begin() - last.begin());  // one copy brings both
    } else {
      const std::int64_t end = last.slot_offset + last.bytes();
      piece.slot_offset = (end + slot_alignment - 1) / slot_alignment * slot_alignment;
    }
    return piece.slot_offset + piece.bytes() <= plan_.slot_bytes;
  }

  /// Adds the pages that no batch has yet to the last one.
  void cover(page_range pages, int file) {
    const std::byte* covered = plan_.ranges.empty() || file != last_file_ ? nullptr : plan_.ranges.back().end;
    if (covered != nullptr && pages.begin <= covered + registered_gap_bytes) pages.begin = covered;
    if (pages.begin >= pages.end) return;
    if (pages.begin != covered || plan_.ranges.size() == plan_.batches.back().own_range)
      plan_.ranges.push_back(pages);
    else
      plan_.ranges.back().end = pages.end;
  }

  const registry& records_;
  std::int64_t window_bytes_;
  int last_file_ = -1;
  feed_plan plan_ = {};
};

}  // namespace detail

/// Plans what a rank with these records reads of a checkpoint's tensors (of one checkpoint; any order).
///
///   window_bytes  most bytes from the begin to the end of a piece (a larger tensor is cut), and of a batch
///
/// Tensors that the model does not know, or knows otherwise, are the first that are named, so that the first load
/// refuses them: nothing is written then.
inline feed_plan plan_feed(const registry& records, std::span<const checkpoint_tensor> tensors,
                           std::int64_t window_bytes) {
  return detail::feed_planner(records, std::max(window_bytes, detail::page_bytes)).make(tensors);
}

}  // namespace wreload
