#pragma once
/// `undo_image`: a host copy of the live bytes that an update overwrites, taken before its first write to them.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/on_use.hpp"
#include "admission.hpp"
#include "coverage.hpp"
#include "model_core.hpp"
#include "options.hpp"
#include "report.hpp"

namespace wreload::detail {

/// Rows of params, whole. A mapped param is saved slot by slot, since a row's bytes lie all over its slot.
template <executor Executor>
class undo_image {
  template <class T>
  using vector = dependent<std::vector<T>, Executor>;

 public:
  /// `told`: receives how many bytes it takes.
  undo_image(model_core<Executor>& core, report& told, undo_mode mode)
      : core_(core), told_(told), has_image_(mode == undo_mode::host) {}

  /// Whether there is an image; without one `save` does nothing.
  bool has_image() const { return has_image_; }

  /// Saves what a job that lands this (or a conversion of it) may change, unless that is saved. Waits.
  status save(const landed_part& what) {
    const landing_record& record = at(core_.records.landings, what.landing);
    if (what.shared) return save_param(record.param);
    const param_record& param = at(core_.records.params, record.param);
    std::int64_t begin = record.local_row, end = record.local_row + record.needed.rows();
    if (param.map != unmapped) {
      begin = begin / param.plan.slot_rows * param.plan.slot_storage_rows;
      end = std::min((end + param.plan.slot_rows - 1) / param.plan.slot_rows * param.plan.slot_storage_rows, param.plan.rows);
    }
    return save(record.param, begin, end);
  }
  status save_param(std::int32_t id) { return save(id, 0, at(core_.records.params, id).plan.rows); }

  bool has(const landed_part& what) const {
    if (what.shared) return false;
    const landing_record& record = at(core_.records.landings, what.landing);
    return !saved_.empty() &&
           at(saved_, record.param).contains({record.local_row, record.local_row + record.needed.rows(), 0, 1});
  }

  /// Writes everything back. Waits. Requires: no write of the update can still happen.
  status restore() {
    typename Executor::lane lane = core_.run.open_own();
    for (const rows& each : image_) {
      const param_record& param = at(core_.records.params, each.param);
      const std::int64_t row_bytes = param.plan.row_bytes();
      const bool dense = param.row_stride_bytes == row_bytes;
      const std::int64_t chunk = dense ? each.end - each.begin : 1;
      for (std::int64_t r = each.begin; r < each.end; r += chunk)
        if (status failed = core_.run.write(lane, param.row(r), each.bytes.data() + (r - each.begin) * row_bytes,
                                            chunk * row_bytes);
            !failed.ok())
          return failed;
    }
    return core_.run.wait(lane);
  }

 private:
  struct rows {
    std::int32_t param = no_index;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    vector<std::byte> bytes = {};
  };

  status save(std::int32_t id, std::int64_t begin, std::int64_t end) {
    if (!has_image_) return {};
    saved_.resize(core_.records.params.size());
    status failed;
    vector<rect> missing;
    at(saved_, id).for_each_missing({begin, end, 0, 1}, [&](const rect& part) { missing.push_back(part); });
    for (const rect& part : missing) {
      if (failed = read({id, part.row_begin, part.row_end}); !failed.ok()) return failed;
      at(saved_, id).insert(part);
    }
    return {};
  }

  status read(rows&& part) {
    const param_record& param = at(core_.records.params, part.param);
    const std::int64_t row_bytes = param.plan.row_bytes();
    const bool dense = param.row_stride_bytes == row_bytes;
    const std::int64_t chunk = dense ? part.end - part.begin : 1;
    part.bytes.resize(static_cast<std::size_t>((part.end - part.begin) * row_bytes));
    if (part.bytes.empty()) return {};
    typename Executor::lane lane = core_.run.open_own();  // what others wrote before this update is complete
    for (std::int64_t r = part.begin; r < part.end; r += chunk)
      if (status failed = core_.run.read(lane, part.bytes.data() + (r - part.begin) * row_bytes, param.row(r),
                                         chunk * row_bytes);
          !failed.ok())
        return failed;
    told_.undo_bytes += static_cast<std::int64_t>(part.bytes.size());
    image_.push_back(static_cast<rows&&>(part));
    return {};
  }

  model_core<Executor>& core_;
  report& told_;
  bool has_image_;
  vector<coverage> saved_ = {};  ///< per param: rows, as a matrix of one column
  vector<rows> image_ = {};
};

}  // namespace wreload::detail
