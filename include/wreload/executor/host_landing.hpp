#pragma once
/// `host_landing`: lands a rectangle in plain memory, or asks what that would change.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../core/job.hpp"
#include "../core/on_use.hpp"
#include "../core/storage_map.hpp"
#include "../numerics/visit.hpp"
#include "../numerics/widen.hpp"

namespace wreload::detail {

/// Landings through the maps of an executor, run by run: what is contiguous in storage at a time.
template <class Use>
class host_landing {
 public:
  explicit host_landing(std::span<const storage_map> maps) : maps_(maps) {}

  void land(const land_job& job) const {
    for_each_run(job, [&](const std::byte* source, std::byte* destination, std::int64_t elements) {
      land_run(job, source, destination, elements);
    });
  }

  /// Whether `land` would change a byte.
  bool would_change(const land_job& job) const {
    bool differs = false;
    dependent<std::vector<std::byte>, Use> landed;
    for_each_run(job, [&](const std::byte* source, std::byte* destination, std::int64_t elements) {
      landed.resize(static_cast<std::size_t>(elements * bytes_of(job.to)));
      land_run(job, source, landed.data(), elements);
      differs |= std::memcmp(landed.data(), destination, landed.size()) != 0;
    });
    return differs;
  }

 private:
  /// Calls `visit(source, destination, elements)` for the runs of a landing; adjacent rows are one run where both sides
  /// are dense.
  template <class Visit>
  void for_each_run(const land_job& job, Visit&& visit) const {
    if (job.rows == 0 || job.cols == 0) return;  // and maybe no source
    const std::int64_t from = bytes_of(job.from), to = bytes_of(job.to);
    const bool dense = job.map == unmapped && job.source_col_stride_bytes == from &&
                       job.source_row_stride_bytes == job.cols * from &&
                       job.destination_row_stride_bytes == job.cols * to;
    if (dense) return visit(job.source, job.destination, job.rows * job.cols);
    for (std::int64_t r = 0; r < job.rows; ++r) {
      const std::byte* source = job.source + r * job.source_row_stride_bytes;
      if (job.map == unmapped) {
        visit(source, job.destination + r * job.destination_row_stride_bytes, job.cols);
        continue;
      }
      const storage_map& map = maps_[static_cast<std::size_t>(job.map)];
      const std::int64_t first = job.map_col * to, end = first + job.cols * to;
      for (std::int64_t col = first; col < end;) {
        const std::int64_t run = contiguous_bytes(map, col, end);
        visit(source + (col - first) / to * job.source_col_stride_bytes,
              job.destination + map_offset(map, job.map_row + r, col, job.destination_row_stride_bytes), run / to);
        col += run;
      }
    }
  }

  /// Lands contiguous storage elements from a source of any column stride.
  static void land_run(const land_job& job, const std::byte* source, std::byte* destination, std::int64_t elements) {
    const std::int64_t from = bytes_of(job.from), to = bytes_of(job.to);
    if (job.from == job.to && (job.source_col_stride_bytes == from || elements == 1)) {
      std::memcpy(destination, source, static_cast<std::size_t>(elements * to));
      return;
    }
    if (job.from == job.to) {
      for (std::int64_t i = 0; i < elements; ++i)
        std::memcpy(destination + i * to, source + i * job.source_col_stride_bytes, static_cast<std::size_t>(to));
      return;
    }
    visit_widening(job.from, job.to, [&](auto narrow, auto wide) {
      for (std::int64_t i = 0; i < elements; ++i) {
        typename codec<decltype(narrow)>::bits code;
        std::memcpy(&code, source + i * job.source_col_stride_bytes, sizeof code);
        const auto value = widen<decltype(narrow), decltype(wide)>(code);
        std::memcpy(destination + i * to, &value, sizeof value);
      }
    });
  }

  std::span<const storage_map> maps_;
};

}  // namespace wreload::detail
