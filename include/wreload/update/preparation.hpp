#pragma once
/// `preparation`: all that is checked of an update before it is committed, and what that commit will overwrite.

#include "../core/status.hpp"
#include "checks.hpp"
#include "layer_commits.hpp"
#include "staged_digests.hpp"
#include "update_core.hpp"

namespace wreload::detail {

/// A refusal has written nothing and leaves the update open. Under the model's lock, with no load running.
template <executor Executor>
class preparation {
 public:
  preparation(update_core<Executor>& update, layer_commits<Executor>& commits)
      : update_(update), model_(update.model), commits_(commits) {}

  /// On success the update's own lane is behind all loads.
  status prepare() { return update_.follower.has_all() ? prepare_planned() : prepare_loaded(); }

 private:
  /// All buckets of the plan have come: the scope is closed, as it was for the update that made the plan.
  status prepare_planned() {
    update_.follower.conclude(update_.report, update_.live.touched());
    return update_.phase.fail_unless_ok(update_.lanes.join(update_.lanes.main()));
  }

  status prepare_loaded() {
    update_.leave_plan(true);
    if (status refused = check_scope(model_, update_.report.missing); !refused.ok()) return refused;
    if (status failed = update_.settle_compares(); !failed.ok()) return failed;
    if (update_.compared)
      if (status refused = check_twins(model_); !refused.ok()) return refused;
    if (status failed = update_.lanes.join(update_.lanes.main()); !failed.ok()) return update_.phase.fail(failed);
    if (status refused = compare_digests(); !refused.ok())
      return refused.code == error_code::corrupt ? refused : update_.phase.fail(refused);
    return update_.phase.fail_unless_ok(commits_.prepare_rest());
  }

  /// What has arrived with the sender's digests.
  status compare_digests() {
    typename Executor::lane& lane = update_.lanes.main().lane;
    if (update_.landed) return update_.landed->check(lane, update_.digests, update_.report);
    if (update_.digests.empty()) return {};
    return check_digests(model_, lane, update_.staging, update_.digests, update_.report);
  }

  update_core<Executor>& update_;
  model_core<Executor>& model_;
  layer_commits<Executor>& commits_;
};

}  // namespace wreload::detail
