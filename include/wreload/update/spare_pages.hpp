#pragma once
/// What the spare pages of an arena need before an update builds the next generation on them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model_core.hpp"

namespace wreload::detail {

/// Refuses, by name, a param that does not lie in the arena.
template <executor Executor>
status check_in_arena(const model_core<Executor>& core) {
  const auto* pages = core.pages;
  for (const param_record& param : core.records.params) {
    if (param.plan.bytes() == 0) continue;
    const std::byte* end = param.row(param.plan.rows - 1) + param.plan.row_bytes();
    if (param.data >= pages->data() && end <= pages->data() + pages->bytes()) continue;
    return refuse(error_code::wrong_state, param.name(), "storage in the model's arena", "storage elsewhere");
  }
  return {};
}

/// Whether a complete update writes every byte of the param: it needs no copy of what was there.
inline bool is_replaced(const param_record& param) {
  const param_spec& spec = param.plan.spec;
  return !spec.fixed && !spec.kept && !spec.retired && !spec.is_block_scale && !spec.is_computed() &&
         param.plan.pads.empty() && param.landing_count > 0 && param.row_stride_bytes == param.plan.row_bytes();
}

/// Enqueues a copy of what the update may leave out: all of the arena but the params that a complete one replaces.
template <executor Executor>
status copy_to_spare(model_core<Executor>& core, typename Executor::lane& lane, bool is_complete) {
  auto* pages = core.pages;
  if (status failed = pages->open_spare(); !failed.ok()) return failed;
  dependent<std::vector<std::pair<std::int64_t, std::int64_t>>, Executor> replaced;  // offsets, ascending
  for (const param_record& param : core.records.params)
    if (is_complete && is_replaced(param))
      replaced.emplace_back(param.data - pages->data(), param.data - pages->data() + param.plan.bytes());
  replaced.emplace_back(pages->bytes(), pages->bytes());
  std::sort(replaced.begin(), replaced.end());
  dependent<std::vector<land_job>, Executor> copies;
  std::int64_t begin = 0;
  for (const auto& [next, end] : replaced) {
    if (next > begin)
      copies.push_back({.source = pages->data() + begin,
                        .destination = pages->spare() + begin,
                        .rows = 1,
                        .cols = next - begin,
                        .source_row_stride_bytes = next - begin,
                        .source_col_stride_bytes = 1,
                        .destination_row_stride_bytes = next - begin,
                        .from = dtype::u8,
                        .to = dtype::u8,
                        .memory = memory_kind::device});
    begin = end;
  }
  return core.run.land(lane, copies);
}

}  // namespace wreload::detail
