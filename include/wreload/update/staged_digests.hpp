#pragma once
/// A sender's digests of checkpoint tensors, and what has arrived aside compared with them before it touches live bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "../numerics/digest.hpp"
#include "digest.hpp"
#include "model_core.hpp"
#include "staging.hpp"

namespace wreload {

/// Appends the digests of a checkpoint tensor in host memory, tile by tile of its matrix form: what a sender gives along.
/// `bundled`: stacked experts [experts, rows, cols] in one tensor. Requires: row-major.
template <class = on_use>
void append_digests(std::string_view name, const tensor_ref& tensor, digest_list& list, bool bundled = false) {
  const std::int64_t width = bundled ? tensor.extents[2] : tensor.extents.cols();
  const std::int64_t rows = width == 0 ? 0 : tensor.extents.elements() / width;
  const std::int64_t element = bytes_of(tensor.type);
  const landing_record whole{.needed = {0, rows, 0, width}};
  detail::for_each_tile(whole, [&](const rect& part) {
    const std::byte* first =
        static_cast<const std::byte*>(tensor.data) + (part.row_begin * width + part.col_begin) * element;
    list.push_back({{}, std::string(name), part, digest_rows(first, part.rows(), part.cols() * element, width * element, 0, 0)});
  });
}

namespace detail {

/// Compares what is kept aside with the sender's digests, as far as whole tiles are here. Refuses by the tensor's name.
/// Waits. Requires: the lane is behind everything that was kept.
template <executor Executor>
status check_digests(model_core<Executor>& core, typename Executor::lane& lane, const basic_staging<Executor>& kept,
                     const digest_list& expected, report& found) {
  using parts = dependent<std::vector<const staged_part*>, Executor>;
  dependent<std::vector<parts>, Executor> by_landing(core.records.landings.size());
  for (std::int32_t layer = 0; layer < static_cast<std::int32_t>(core.records.layers.size()); ++layer)
    for (const staged_part& part : kept.parts(layer))
      if (part.memory != nullptr && !part.what.shared && !part.what.is_transposed && !part.is_widened)
        at(by_landing, part.what.landing).push_back(&part);
  struct tile {
    const tile_digest* told = nullptr;
    std::size_t first_job = 0, end_job = 0;
  };
  dependent<std::vector<tile>, Executor> tiles;
  dependent<std::vector<digest_job>, Executor> jobs;
  found.digests_checked = found.digests_unchecked = 0;
  for (const tile_digest& told : expected) {
    const std::int32_t id = core.records.names.find(told.source);
    bool is_here = false;
    if (id != no_index && digest_grid_of(told.part).tiles() == 1) {
      const source_record& source = at(core.records.sources, core.records.names[id].source);
      for (const std::int32_t l : source.landings) {
        tile whole{&told, jobs.size(), jobs.size()};
        std::int64_t elements = 0;
        for (const staged_part* part : at(by_landing, l)) {
          const rect both = intersect(part->what.part, told.part);
          if (both.empty()) continue;
          const std::int64_t element = bytes_of(part->job.from);
          elements += both.elements();
          jobs.push_back({.data = part->memory + (both.row_begin - part->what.part.row_begin) * part->job.source_row_stride_bytes +
                                  (both.col_begin - part->what.part.col_begin) * element,
                          .rows = both.rows(),
                          .cols = both.cols(),
                          .row_stride_bytes = part->job.source_row_stride_bytes,
                          .row = both.row_begin,
                          .col = both.col_begin,
                          .element_bytes = static_cast<std::int32_t>(element)});
        }
        whole.end_job = jobs.size();
        if (elements == told.part.elements()) {
          tiles.push_back(whole);
          is_here = true;
        } else {
          jobs.resize(whole.first_job);
        }
      }
    }
    ++(is_here ? found.digests_checked : found.digests_unchecked);
  }
  dependent<std::vector<std::uint64_t>, Executor> sums(jobs.size());
  if (status failed = core.run.digest(lane, jobs, sums); !failed.ok()) return failed;
  for (const tile& each : tiles) {
    std::uint64_t sum = 0;
    for (std::size_t i = each.first_job; i < each.end_job; ++i) sum += sums[i];
    if (sum != each.told->sum)
      return refuse(error_code::corrupt, each.told->source, "the sender's digest of " + to_string(each.told->part),
                    "other bytes");
  }
  return {};
}

}  // namespace detail
}  // namespace wreload
