#pragma once
/// `layer_commits`: brings layers from aside to live storage, and does what follows once they have landed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../core/on_use.hpp"
#include "plan.hpp"
#include "update_core.hpp"

namespace wreload::detail {

/// Layerwise: each layer as soon as it is whole, on the lane whose load made it so; one that finds no room, at once.
/// What is left: all together, on the update's own lane, at the end. Under the model's lock.
template <executor Executor>
class layer_commits {
  using step_list = dependent<std::vector<planned_step<Executor>>, Executor>;

 public:
  explicit layer_commits(update_core<Executor>& update) : update_(update), model_(update.model) {}

  /// Commits the layers that these parts have made whole. The lane is behind all that came before.
  status commit_whole(lane_state<Executor>& lane, std::span<const landed_part> arrived) {
    std::int32_t checked = no_index;  // all of the load has arrived by now: once a layer will do
    for (const landed_part& what : arrived) {
      const std::int32_t id = model_.records.layer_of(what.landing);
      if (id == checked) continue;
      checked = id;
      const layer_record& layer = at(model_.records.layers, id);
      if (!update_.staging.holds(id) && !update_.live.takes(what.landing)) continue;  // committed for an earlier piece
      if (waits_for_twins(id)) continue;
      bool is_whole = true;
      model_.books.for_each_gap(layer.first_landing, layer.landing_count,
                                [&](std::int32_t, const rect&) { is_whole = false; });
      if (!is_whole) continue;
      collect(id);
      if (update_.post_load.empty() && !update_.staging.holds(id)) continue;
      if (status failed = save({&id, 1}); !failed.ok()) return failed;
      if (status failed = write_and_release(lane, id); !failed.ok()) return failed;
    }
    return {};
  }

  /// A layer that finds no room: what it has aside lands now, and the rest where it belongs.
  status go_direct(lane_state<Executor>& lane, std::int32_t layer) {
    update_.report.direct_layers.push_back(at(model_.records.layers, layer).name);
    update_.live.take_layer(layer);
    for (const staged_part& part : update_.staging.parts(layer))
      if (status failed = update_.undo.save(part.what); !failed.ok()) return failed;
    if (status failed = update_.lanes.follow_last(lane); !failed.ok()) return failed;
    return write_and_release(lane, layer);
  }

  /// Collects what is left for the end, and saves what that overwrites.
  status prepare_rest() {
    for (std::size_t i = 0; i < model_.records.layers.size(); ++i) {
      const auto layer = static_cast<std::int32_t>(i);
      if (update_.live.touched()[i] == 0) continue;
      if (update_.mode == update_mode::layerwise && !update_.staging.holds(layer) && !waits_for_twins(layer))
        continue;  // committed
      rest_.push_back(layer);
      collect(layer);
    }
    update_.report.converted_rows = update_.post_load.converted_rows();
    update_.report.fused_rows = update_.post_load.fused_rows();
    return save(rest_);
  }
  /// Enqueues it on the update's own lane. `steps`: receives it, to be done again.
  status commit_rest(step_list* steps) { return write(update_.lanes.main(), rest_, steps); }

 private:
  /// Whether a second name of FP8 bytes may still come: it is compared with them, so they are not converted before
  /// `commit`.
  bool waits_for_twins(std::int32_t id) const {
    if (model_.records.twin_groups.empty()) return false;
    const layer_record& layer = at(model_.records.layers, id);
    for (std::int32_t l = layer.first_landing; l < layer.first_landing + layer.landing_count; ++l) {
      const landing_record& landing = at(model_.records.landings, l);
      if (landing.twins != no_index && at(model_.records.params, landing.param).plan.spec.converts()) return true;
    }
    return false;
  }

  void collect(std::int32_t layer) {
    update_.post_load.collect_aside(update_.staging.parts(layer));
    update_.post_load.collect(at(model_.records.layers, layer));
  }

  /// Saves what the layers' landings and what was collected overwrite, where the update is to be undone.
  status save(std::span<const std::int32_t> layers) {
    if (!update_.undo.has_image()) return {};
    for (const std::int32_t layer : layers)
      for (const staged_part& part : update_.staging.parts(layer))
        if (status failed = update_.undo.save(part.what); !failed.ok()) return failed;
    for (const computed_record* record : update_.post_load.computed())
      if (status failed = update_.undo.save_param(record->param); !failed.ok()) return failed;
    return {};
  }

  /// Lands what layers have aside, then converts and computes what was collected.
  status write(lane_state<Executor>& lane, std::span<const std::int32_t> layers, step_list* steps = nullptr) {
    if (!update_.post_load.empty()) update_.live.note();
    const auto land = [&](std::span<const land_job> jobs) {
      update_.live.note();
      return model_.run.land(lane.lane, jobs);
    };
    const auto lands = [&](const staged_part& part) { return !update_.post_load.is_fused(part); };
    if (status failed = update_.staging.for_each_wave(layers, lands, land); !failed.ok()) return failed;
    return update_.post_load.enqueue(lane.lane, steps);
  }
  /// The layer's memory serves others from here on.
  status write_and_release(lane_state<Executor>& lane, std::int32_t layer) {
    if (status failed = write(lane, {&layer, 1}); !failed.ok()) return failed;
    update_.staging.release(layer);
    update_.lanes.note_overtaking();
    return {};
  }

  update_core<Executor>& update_;
  model_core<Executor>& model_;
  dependent<std::vector<std::int32_t>, Executor> rest_ = {};  ///< layers that `commit_rest` writes
};

}  // namespace wreload::detail
