#pragma once
/// Digests of runtime tensors, per tile of the *global* tensor, so that models that are cut differently compare.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../core/on_use.hpp"
#include "../executor/executor.hpp"
#include "registry.hpp"

namespace wreload {

/// The digest of the part of a tile that one landing holds. Sums over disjoint parts of a tile add up to the tile's.
struct tile_digest {
  std::string param = {};   ///< runtime name
  std::string source = {};  ///< checkpoint name, in whose matrix form `part` is
  rect part = {};           ///< inside one tile; in runtime dtype
  std::uint64_t sum = 0;
};
using digest_list = std::vector<tile_digest>;

namespace detail {

constexpr digest_grid digest_grid_of(const rect& part) {
  return wreload::digest_grid_of(part.row_begin, part.col_begin, part.rows(), part.cols());
}
using wreload::digest_grid_of;

/// Calls `visit(part)` for the tiles' parts of a landing.
template <class Visit>
void for_each_tile(const landing_record& landing, Visit&& visit) {
  const rect& all = landing.needed;
  for (std::int64_t r = all.row_begin / digest_tile_rows; r * digest_tile_rows < all.row_end; ++r)
    for (std::int64_t c = all.col_begin / digest_tile_cols; c * digest_tile_cols < all.col_end; ++c)
      visit(intersect(all, {r * digest_tile_rows, (r + 1) * digest_tile_rows, c * digest_tile_cols,
                            (c + 1) * digest_tile_cols}));
}

/// The whole landing, as it lies in storage.
template <class Use>
digest_job digest_job_for(const basic_registry<Use>& records, const landing_record& landing) {
  const param_record& param = at(records.params, landing.param);
  const std::int64_t row = landing.local_row;
  const bool mapped = param.map != unmapped;
  return {.data = mapped ? param.slot_of(row) : param.row(row),
          .rows = landing.needed.rows(),
          .cols = landing.needed.cols(),
          .row_stride_bytes = param.row_stride_bytes,
          .row = landing.needed.row_begin,
          .col = landing.needed.col_begin,
          .element_bytes = static_cast<std::int32_t>(bytes_of(param.plan.spec.runtime)),
          .map = param.map,
          .map_row = mapped ? row % param.plan.slot_rows : 0};
}

/// Calls `visit(landing)` for everything that kernels read and a checkpoint brings, and for retired params that computed
/// ones read. Not for what else is retired, for static params, for pads, or for computed params: those follow from the
/// others, and differ between shardings.
template <class Use, class Visit>
void for_each_digested(const basic_registry<Use>& records, Visit&& visit) {
  dependent<std::vector<std::uint8_t>, Use> feeds(records.params.size());
  for (const computed_record& record : records.computed)
    for (const std::int32_t source : record.sources) at(feeds, source) = 1;
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(records.params.size()); ++id) {
    const param_record& param = at(records.params, id);
    if (param.plan.spec.retired && at(feeds, id) == 0) continue;
    for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l)
      if (!at(records.landings, l).needed.empty()) visit(at(records.landings, l));
  }
}

/// The digests of all those landings, a landing's tiles one after the other. Waits. One job a landing: no name is touched.
template <executor Executor, class Use>
status digest_sums(Executor& run, typename Executor::lane& lane, const basic_registry<Use>& records,
                   dependent<std::vector<std::uint64_t>, Use>& sums) {
  dependent<std::vector<digest_job>, Use> jobs;
  std::int64_t tiles = 0;
  for_each_digested(records, [&](const landing_record& landing) {
    jobs.push_back(digest_job_for(records, landing));
    tiles += digest_grid_of(jobs.back()).tiles();
  });
  sums.resize(static_cast<std::size_t>(tiles));
  return run.digest(lane, jobs, sums);
}

/// Appends them with names and places.
template <executor Executor, class Use>
status digest_tiles(Executor& run, typename Executor::lane& lane, const basic_registry<Use>& records,
                    dependent<digest_list, Use>& list) {
  dependent<std::vector<std::uint64_t>, Use> sums;
  if (status failed = digest_sums(run, lane, records, sums); !failed.ok()) return failed;
  list.reserve(list.size() + sums.size());
  auto next = sums.begin();
  for_each_digested(records, [&](const landing_record& landing) {
    for_each_tile(landing, [&](const rect& part) {
      list.push_back({at(records.params, landing.param).name(), std::string(at(records.sources, landing.source).name), part,
                      *next++});
    });
  });
  return {};
}

/// One number for the whole model.
template <executor Executor, class Use>
status digest_model(Executor& run, typename Executor::lane& lane, const basic_registry<Use>& records,
                    std::uint64_t* digest) {
  dependent<std::vector<std::uint64_t>, Use> sums;
  if (status failed = digest_sums(run, lane, records, sums); !failed.ok()) return failed;
  *digest = 0;
  for (const std::uint64_t sum : sums) *digest = *digest * 0x9E3779B97F4A7C15U + sum;
  return {};
}

}  // namespace detail
}  // namespace wreload
