#pragma once
// The job, on any executor: FIRST cold, each NEXT in place, audit, dump.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <wreload/source/checkpoint.hpp>

#include "audit.hpp"
#include "dump.hpp"
#include "layers.hpp"
#include "loading.hpp"
#include "ordering.hpp"
#include "summary.hpp"

namespace reload {

// Fills `done` as far as it gets. A refusal starts with the path that it is about, as given.
template <wr::executor Executor>
wr::status run(const options& asked, summary& done) {
  std::vector<wr::checkpoint> checkpoints(asked.checkpoints.size());
  for (std::size_t i = 0; i < checkpoints.size(); ++i)
    if (wr::status refused = checkpoints[i].open(asked.checkpoints[i]); !refused.ok()) return refused;
  std::vector<layer> layers;
  if (wr::status refused = choose_layers(checkpoints, asked, layers, done.warnings); !refused.ok()) return refused;
  engine<Executor> live(std::byte{0xA5});
  const bool swaps = asked.mode == wr::update_mode::swap;
  if (wr::status refused = live.build(layers, swaps); !refused.ok()) return within(checkpoints.front().path(), refused);

  progress shown;
  std::optional<feed<Executor>> files;  // its memory is taken before the first update
  if (!asked.sends_in_order()) files.emplace(wr::feed_options{});
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const std::vector<wr::checkpoint_tensor> tensors =
        in_order(checkpoints[i].tensors(), asked.order.value_or(send_order{}));
    wr::report report;
    const wr::status result = send(live,
                                   {.tensors = tensors,
                                    .bucket_bytes = asked.bucket_bytes.value_or(0),
                                    .partial = asked.partial && i > 0,
                                    .mode = asked.mode,
                                    .budget_bytes = asked.budget_bytes.value_or(wr::staging_memory::no_limit),
                                    .undo = asked.undo},
                                   files ? &*files : nullptr, checkpoints[i].path(), shown, &report);
    done.state = live.model().state();
    done.version = live.model().version();
    if (!result.ok()) return within(checkpoints[i].path(), result);
    for (const std::string& warning : report.warnings) done.warn(warning);
    report.peak_extra_device_bytes += live.spare_bytes();  // pages of the arena, not the library's own
    done.loads.push_back(std::move(report));
  }

  if (asked.audit) {
    const double began = wr::detail::seconds_now();
    if (wr::status failed = audit(live, layers, checkpoints, asked.partial, shown, &done.audit.emplace()); !failed.ok())
      return failed;
    done.audit_seconds = wr::detail::seconds_now() - began;
  }
  // A failed update or audit leaves no dump; a difference that the audit found can be looked at in it.
  return asked.dump ? dump(live, *asked.dump) : wr::status{};
}

}  // namespace reload
