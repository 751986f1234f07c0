#pragma once
/// `update_core`: what the loads of an open update and its end share.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "../core/on_use.hpp"
#include "aside_memory.hpp"
#include "digest.hpp"
#include "landed_digests.hpp"
#include "live_writes.hpp"
#include "model_core.hpp"
#include "options.hpp"
#include "plan_follower.hpp"
#include "post_load.hpp"
#include "report.hpp"
#include "staging.hpp"
#include "undo_image.hpp"
#include "update_lanes.hpp"
#include "update_phase.hpp"

namespace wreload::detail {

/// State of an open update, under the model's lock. Neither copied nor moved: its parts point to each other.
template <executor Executor>
struct update_core {
  update_core(model_core<Executor>& of, const start_options& options)
      : model(of), mode(options.mode), live(of, options.mode), phase(live, report), post_load(of, live.offset()),
        staging(of.records, options.staging.where), memory(of.run, staging.space(), options.staging),
        undo(of, report, options.undo), follower(of, mode, may_record(of, options)), lanes(of, options.stream) {
    digests.assign(options.digests.begin(), options.digests.end());
    if (options.digest_landed || (!digests.empty() && mode != update_mode::staged)) landed.emplace(of);
  }
  update_core(const update_core&) = delete;
  update_core& operator=(const update_core&) = delete;

  /// The update is like any other from here on. `in_bucket`: what comes next may be recorded.
  void leave_plan(bool in_bucket = false) {
    follower.leave(post_load, report, live.touched());
    if (!in_bucket) follower.stop_recording();
  }

  /// Waits for comparisons with bytes that came under another name.
  status settle_compares() { return compared ? phase.fail_unless_ok(lanes.wait()) : status{}; }

  /// Whether what its buckets do may become the model's plan; see `plan_follower`.
  static bool may_record(const model_core<Executor>& of, const start_options& options) {
    return lands_at_once(options.mode) && of.books.scope().is_complete() && options.undo == undo_mode::none &&
           options.digests.empty() && !options.digest_landed;
  }

  model_core<Executor>& model;
  update_mode mode;
  wreload::report report = {};
  live_writes<Executor> live;
  update_phase<Executor> phase;
  detail::post_load<Executor> post_load;
  basic_staging<Executor> staging;
  aside_memory<Executor> memory;            ///< of `staging`
  undo_image<Executor> undo;
  plan_follower<Executor> follower;
  dependent<digest_list, Executor> digests = {};            ///< the sender's
  std::optional<landed_digests<Executor>> landed = {};      ///< empty where landings are not digested
  update_lanes<Executor> lanes;
  bool compared = false;                    ///< comparisons with bytes that came under another name were enqueued
};

}  // namespace wreload::detail
