#pragma once
/// `in_place`: tensors that a transport writes itself, where `landing` said, and that `adopt` then marks arrived.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../core/on_use.hpp"
#include "intake.hpp"
#include "layer_commits.hpp"
#include "update_core.hpp"

namespace wreload::detail {

/// Under the model's lock.
template <executor Executor>
class in_place {
  using admission = dependent<wreload::admission, Executor>;

 public:
  in_place(update_core<Executor>& update, layer_commits<Executor>& commits)
      : update_(update), model_(update.model), commits_(commits), intake_(update.model) {}

  /// Says where the bytes of a box may be written: aside, where room is taken for them; or in live storage.
  status grant(const piece& wanted, direct_landing* out) {
    admission trial;  // checked as a load of the same box, then given back
    if (status refused = intake_.try_out(wanted, trial); !refused.ok()) return refused;
    const land_job& job = trial.lands[0];
    const landed_part& what = trial.landed[0];
    if (status failed = update_.lanes.wait_if_overtaking(); !failed.ok()) return update_.phase.fail(failed);
    std::byte* memory = update_.staging.granted(what, job.from);
    if (memory == nullptr && update_.staging.overlaps_grant(what, job.from))
      return refuse(error_code::unsupported, wanted.name, "a box that was not granted in part", to_string(what.part));
    if (memory == nullptr && !update_.live.takes(what.landing)) {
      const std::int64_t bytes = job.rows * job.cols * bytes_of(job.from);
      if (status failed = update_.memory.take(bytes, &memory); !failed.ok()) return update_.phase.fail(failed);
      if (memory != nullptr) {
        update_.staging.note_grant(what, job.from, memory, bytes);
      } else if (update_.mode == update_mode::layerwise && update_.memory.or_direct()) {
        const std::int32_t layer = model_.records.layer_of(what.landing);
        if (status failed = commits_.go_direct(update_.lanes.main(), layer); !failed.ok())
          return update_.phase.fail(failed);
      } else {
        return update_.memory.over_budget(model_.records.source_of(what.landing), bytes);
      }
    }
    if (memory != nullptr) {
      *out = {memory, job.rows, job.cols, job.cols * bytes_of(job.from), job.to};
      return {};
    }
    *out = {job.destination + update_.live.offset(), job.rows, job.cols, job.destination_row_stride_bytes, job.to};
    if (status failed = update_.undo.save(what); !failed.ok()) return update_.phase.fail(failed);
    model_.books.note_written(trial.claims);
    update_.live.note();
    if (update_.mode == update_mode::swap) update_.staging.note_grant(what, job.from, nullptr, 0);
    return {};
  }

  /// Marks whole tensors arrived, all or (on a refusal) none.
  status adopt(std::span<const std::string_view> names, load_form form) {
    lane_state<Executor>& lane = update_.lanes.main();
    if (status refused = intake_.take_in_place(names, form, lane.load); !refused.ok())
      return update_.phase.note(refused);
    const admission& work = lane.load.work;
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      if (was_granted(work.lands[i], work.landed[i])) continue;
      model_.books.release(work.claims);
      return update_.phase.note(refuse(error_code::unsupported, model_.records.source_of(work.landed[i].landing),
                                       "bytes that were written where `landing` said",
                                       "a tensor that has no landing in this update"));
    }
    model_.books.note_written(work.claims);
    for (std::size_t i = 0; i < work.lands.size(); ++i) {
      update_.live.touch(work.landed[i].landing);
      if (update_.live.takes(work.landed[i].landing)) update_.live.note();
      if (update_.mode != update_mode::swap)
        update_.staging.adopt(work.lands[i], work.landed[i]);  // also of a layer gone direct since
    }
    for (const counted_piece& part : lane.load.counted) count(part, update_.report);
    if (update_.mode != update_mode::layerwise) return {};
    status failed = update_.lanes.follow_last(lane);
    if (failed.ok()) failed = commits_.commit_whole(lane, work.landed);
    return update_.phase.fail_unless_ok(failed);
  }

 private:
  /// In live storage a landing that nobody asked for may be adopted too, but for what would have had to be saved first.
  bool was_granted(const land_job& job, const landed_part& what) const {
    if (update_.staging.was_granted(job, what)) return true;
    const bool may_be_live = update_.live.takes(what.landing) && update_.mode != update_mode::swap;
    return may_be_live && (!update_.undo.has_image() || update_.undo.has(what));
  }

  update_core<Executor>& update_;
  model_core<Executor>& model_;
  layer_commits<Executor>& commits_;
  intake<Executor> intake_;
};

}  // namespace wreload::detail
