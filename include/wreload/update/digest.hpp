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

inline constexpr std::int64_t digest_tile_rows = 256;
inline constexpr std::int64_t digest_tile_cols = 4096;

/// The digest of the part of a tile that one landing holds. Sums over disjoint parts of a tile add up to the tile's.
struct tile_digest {
  std::string param = {};   ///< runtime name
  std::string source = {};  ///< checkpoint name, in whose matrix form `part` is
  rect part = {};           ///< inside one tile; in runtime dtype
  std::uint64_t sum = 0;
};
using digest_list = std::vector<tile_digest>;

namespace detail {

/// Calls `visit(landing, part)` for the tiles' parts of a landing.
template <class Visit>
void for_each_tile(const landing_record& landing, Visit&& visit) {
  const rect& all = landing.needed;
  for (std::int64_t r = all.row_begin / digest_tile_rows; r * digest_tile_rows < all.row_end; ++r)
    for (std::int64_t c = all.col_begin / digest_tile_cols; c * digest_tile_cols < all.col_end; ++c)
      visit(intersect(all, {r * digest_tile_rows, (r + 1) * digest_tile_rows, c * digest_tile_cols,
                            (c + 1) * digest_tile_cols}));
}

template <class Use>
bool feeds_computed(const basic_registry<Use>& records, const param_record& param) {
  for (const computed_record& record : records.computed)
    for (const std::int32_t source : record.sources)
      if (&at(records.params, source) == &param) return true;
  return false;
}

template <class Use>
digest_job tile_job(const basic_registry<Use>& records, const landing_record& landing, const rect& part) {
  const param_record& param = at(records.params, landing.param);
  const source_record& source = at(records.sources, landing.source);
  const std::int64_t width = source.bundled ? source.extents[2] : source.extents.cols();
  const std::int64_t element = bytes_of(param.plan.spec.runtime);
  const std::int64_t row = landing.local_row + part.row_begin - landing.needed.row_begin;
  const std::int64_t col = part.col_begin - landing.needed.col_begin;
  const bool mapped = param.map != unmapped;
  return {.data = mapped ? param.slot_of(row) : param.row(row) + col * element,
          .rows = part.rows(),
          .cols = part.cols(),
          .row_stride_bytes = param.row_stride_bytes,
          .first_index = part.row_begin * width + part.col_begin,
          .index_row_stride = width,
          .element_bytes = static_cast<std::int32_t>(element),
          .map = param.map,
          .map_row = mapped ? row % param.plan.slot_rows : 0,
          .map_col = mapped ? col : 0};
}

/// Appends digests of everything that kernels read and a checkpoint brings, and of retired params that computed ones read.
/// Not of what else is retired, of static params, of pads, or of computed params: those follow from the digested ones, and
/// differ between shardings.
template <executor Executor, class Use>
status digest_tiles(Executor& run, typename Executor::lane& lane, const basic_registry<Use>& records,
                    dependent<digest_list, Use>& list) {
  dependent<std::vector<digest_job>, Use> jobs;
  const std::size_t first = list.size();
  for (const param_record& param : records.params) {
    if (param.plan.spec.retired && !feeds_computed(records, param)) continue;
    for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l) {
      const landing_record& landing = at(records.landings, l);
      for_each_tile(landing, [&](const rect& part) {
        list.push_back({param.name(), std::string(at(records.sources, landing.source).name), part, 0});
        jobs.push_back(tile_job(records, landing, part));
      });
    }
  }
  dependent<std::vector<std::uint64_t>, Use> sums(jobs.size());
  status failed = run.digest(lane, jobs, sums);
  for (std::size_t i = 0; i < sums.size(); ++i) list[first + i].sum = sums[i];
  return failed;
}

/// One number for the whole model.
template <executor Executor, class Use>
status digest_model(Executor& run, typename Executor::lane& lane, const basic_registry<Use>& records,
                    std::uint64_t* digest) {
  dependent<digest_list, Use> list;
  if (status failed = digest_tiles(run, lane, records, list); !failed.ok()) return failed;
  *digest = 0;
  for (const tile_digest& tile : list) *digest = *digest * 0x9E3779B97F4A7C15U + tile.sum;
  return {};
}

}  // namespace detail
}  // namespace wreload
