#pragma once
/// `retraction`: forgets what has arrived under a name, so that it may come again.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "intake.hpp"
#include "update_core.hpp"

namespace wreload::detail {

/// With a landing go those that share its bytes, and the other half of a weight and its scale where the two were
/// combined already. Under the model's lock.
template <executor Executor>
class retraction {
 public:
  explicit retraction(update_core<Executor>& update) : update_(update), model_(update.model) {}

  /// A checkpoint or a runtime name.
  status retract(std::string_view name) {
    const std::int32_t id = model_.records.names.find(name);
    const std::int32_t param = model_.records.find_param(name);
    if (id == no_index && param == no_index) return update_.phase.note(intake<Executor>::unknown(name));
    if (status refused = update_.lanes.check_idle(name); !refused.ok()) return refused;
    if (status failed = update_.settle_compares(); !failed.ok()) return failed;
    status failed;
    if (update_.landed)  // sums begin anew behind everything that was added to them
      failed = update_.lanes.join(update_.lanes.main());
    if (failed.ok())
      failed = id != no_index ? retract_source(model_.records.names[id].source)
                              : retract_param(at(model_.records.params, param));
    if (failed.ok()) failed = order_what_comes();
    return update_.phase.fail_unless_ok(failed);
  }

 private:
  status retract_source(std::int32_t source) {
    for (const std::int32_t l : at(model_.records.sources, source).landings)
      if (status failed = retract_landing(l); !failed.ok()) return failed;
    model_.books.retract(source);
    return {};
  }

  status retract_param(const param_record& param) {
    for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l)
      if (status failed = retract_landing(l); !failed.ok()) return failed;
    return {};
  }

  status retract_landing(std::int32_t l) {
    const landing_record& record = at(model_.records.landings, l);
    const std::int32_t partner = record.scale != no_index ? record.scale : record.weight;
    const std::int32_t weight = record.scale != no_index ? l : record.weight;
    const bool is_converted = weight != no_index && update_.post_load.is_converted(weight);
    status failed;
    for (const std::int32_t each : {l, is_converted ? partner : no_index}) {
      if (each == no_index) continue;
      model_.records.for_each_twin(each, [&](std::int32_t twin) {
        update_.staging.forget(twin);
        update_.post_load.forget(twin);
        if (update_.landed && failed.ok()) failed = update_.landed->forget(update_.lanes.main().lane, twin);
      });
      model_.books.retract_landing(each);
    }
    return failed;
  }

  status order_what_comes() {
    // A difference that was found counts no longer for groups that must come anew.
    for (std::size_t group = 0; group < model_.records.twin_groups.size(); ++group)
      if (!model_.books.arrivals().any_of_group(static_cast<std::int32_t>(group))) model_.run.flags()[group] = 0;
    // What comes again may come on another lane: it must not overtake what is retracted.
    if (status failed = update_.lanes.join_each(); !failed.ok()) return failed;
    update_.lanes.note_overtaking();
    return {};
  }

  update_core<Executor>& update_;
  model_core<Executor>& model_;
};

}  // namespace wreload::detail
