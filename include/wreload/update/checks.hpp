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
  for (std::size_t group = 0; group < core.records.twin_groups.size(); ++group) {
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

/// Params of which kernels use the greatest scalar for all shards.
template <executor Executor>
void find_equal_params(model_core<Executor>& core) {
  core.equal_params.clear();
  for (std::size_t i = 0; i < core.records.params.size(); ++i)
    if (core.records.params[i].plan.spec.expect_equal && core.records.params[i].plan.rows > 1)
      core.equal_params.push_back(static_cast<std::int32_t>(i));
}

/// Enqueues, for those that have arrived, a comparison of each shard's scalar with the next; one launch. `offset`: from live
/// addresses to those that the update writes.
template <executor Executor>
status compare_shards(model_core<Executor>& core, typename Executor::lane& lane, std::ptrdiff_t offset) {
  dependent<std::vector<land_job>, Executor> jobs;
  dependent<std::vector<std::int32_t>, Executor> flags;
  for (std::size_t i = 0; i < core.equal_params.size(); ++i) {
    const param_record& param = at(core.records.params, core.equal_params[i]);
    if (!core.books.param_arrived(core.equal_params[i])) continue;
    const std::int64_t element = bytes_of(param.plan.spec.runtime);
    jobs.push_back({.source = param.data + element + offset,
                    .destination = param.data + offset,
                    .rows = 1,
                    .cols = param.plan.rows - 1,
                    .source_row_stride_bytes = param.plan.bytes(),
                    .source_col_stride_bytes = element,
                    .destination_row_stride_bytes = param.plan.bytes(),
                    .from = param.plan.spec.runtime,
                    .to = param.plan.spec.runtime,
                    .memory = memory_kind::device});
    flags.push_back(core.equal_flag(i));
  }
  return jobs.empty() ? status{} : core.run.compare(lane, jobs, flags);
}

/// Says which shards differ, once `compare_shards` has been waited for. Waits.
template <executor Executor>
status warn_unequal_shards(model_core<Executor>& core, typename Executor::lane& lane,
                           std::vector<std::string>& warnings) {
  for (std::size_t i = 0; i < core.equal_params.size(); ++i) {
    const param_record& param = at(core.records.params, core.equal_params[i]);
    if (core.run.flags()[static_cast<std::size_t>(core.equal_flag(i))] == 0) continue;
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

/// Tensors of the scope that did not come.
template <executor Executor>
std::int64_t count_not_sent(const model_core<Executor>& core) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < core.records.sources.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    count += core.books.scope().has(id) && !core.books.arrived(id);
  }
  return count;
}

/// Params that are derived by a map.
template <executor Executor>
alias_count count_aliases(const model_core<Executor>& core) {
  alias_count into;
  for (const param_record& param : core.records.params) {
    if (param.plan.spec.kind != param_kind::mapped) continue;
    ++(param.plan.pad_bytes() == 0 ? into.aliased : into.bound);
    into.shared_bytes += param.plan.bytes() - param.plan.pad_bytes();
  }
  return into;
}

}  // namespace wreload::detail
