#pragma once
/// What an update checks before it commits, and says after it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "model_core.hpp"

namespace wreload::detail {

inline constexpr std::size_t most_missing_names = 64;

/// Law 6: by names and boxes. `missing` receives the names with their parts, at most 64.
template <executor Executor>
status check_scope(const model_core<Executor>& core, std::vector<std::string>& missing) {
  missing.clear();
  std::size_t gaps = 0;
  status refused;
  core.books.for_each_gap(0, static_cast<std::int32_t>(core.records.landings.size()), [&](std::int32_t l, const rect& gap) {
    const landing_record& where = at(core.records.landings, l);
    const source_record& source = at(core.records.sources, where.source);
    if (gaps++ == 0)
      refused = refuse(error_code::incomplete, source.name, to_string(source.accepted) + " " + to_string(source.extents),
                       gap == where.needed ? "nothing" : "nothing for " + to_string(gap));
    if (missing.size() < most_missing_names) missing.push_back(std::string(source.name) + " (" + to_string(gap) + ")");
  });
  if (gaps > 1) refused.got += " (and " + std::to_string(gaps - 1) + " more gaps)";
  return refused;
}

/// Refuses where names of the same bytes have brought different ones. Requires: the comparisons were waited for.
template <executor Executor>
status check_twins(model_core<Executor>& core) {
  const auto flags = std::span<const std::uint32_t>(core.run.flags());
  for (std::size_t group = 0; group < flags.size(); ++group) {
    if (flags[group] == 0) continue;
    std::string names;
    for (const std::int32_t l : core.records.twin_groups[group]) {
      if (!names.empty()) names += " and ";
      names += at(core.records.sources, at(core.records.landings, l).source).name;
    }
    return refuse(error_code::conflict, names, "the same bytes under each name", "different ones");
  }
  return {};
}

/// Kernels use the greatest of these scalars for all shards: says so where it is not every shard's. Waits.
template <executor Executor>
status warn_unequal_shards(model_core<Executor>& core, typename Executor::lane& lane,
                           std::vector<std::string>& warnings) {
  for (std::size_t i = 0; i < core.records.params.size(); ++i) {
    const param_record& param = core.records.params[i];
    if (!param.plan.spec.expect_equal || !core.books.param_arrived(static_cast<std::int32_t>(i))) continue;
    dependent<std::vector<float>, Executor> values(static_cast<std::size_t>(param.plan.rows));
    if (status failed = core.run.read(lane, reinterpret_cast<std::byte*>(values.data()), param.data, param.plan.bytes());
        !failed.ok())
      return failed;
    const auto other = std::adjacent_find(values.begin(), values.end(), [](float a, float b) { return a != b; });
    if (other == values.end()) continue;
    const auto shown = [&](std::size_t row) {
      const landing_record& from = at(core.records.landings, param.first_landing + static_cast<std::int32_t>(row));
      char value[32] = {};
      std::snprintf(value, sizeof value, "%.9g", static_cast<double>(values[row]));
      return std::string(at(core.records.sources, from.source).name) + " = " + value;
    };
    const auto row = static_cast<std::size_t>(other - values.begin());
    warnings.push_back(param.name() + ": shards differ, " + shown(row) + " and " + shown(row + 1) +
                       "; the greatest scales them all");
  }
  return {};
}

/// Params that are derived by a map, and what their sources do not take.
template <executor Executor>
void count_aliases(const model_core<Executor>& core, report& into) {
  for (const param_record& param : core.records.params) {
    if (param.plan.spec.kind != param_kind::mapped) continue;
    ++(param.plan.pad_bytes() == 0 ? into.aliased : into.bound);
    into.shared_bytes += param.plan.bytes() - param.plan.pad_bytes();
  }
}

}  // namespace wreload::detail
