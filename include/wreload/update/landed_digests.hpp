#pragma once
/// Digests of checkpoint tensors, added up by the landings themselves: what arrived in live storage (or on spare pages)
/// is compared with a sender's digests without being read again.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../core/on_use.hpp"
#include "admission.hpp"
#include "digest.hpp"
#include "model_core.hpp"

namespace wreload::detail {

/// The sums of an update, one per tile that a landing touches, in the executor's memory; each landing's side by side.
///
/// A landing counts where all of it has landed from checkpoint (or row-major runtime) form since the update began or it
/// was last forgotten. Not counted: what is compared with bytes that came under another name, what a transport wrote
/// itself (`adopt`), tensors in kernel order.
template <executor Executor>
class landed_digests {
  template <class T>
  using vector = dependent<std::vector<T>, Executor>;
  using digest_list = dependent<wreload::digest_list, Executor>;

 public:
  explicit landed_digests(model_core<Executor>& core) : core_(core), elements_(core.records.landings.size()) {
    first_.push_back(0);
    for (const landing_record& landing : core.records.landings)
      first_.push_back(first_.back() + digest_grid_of(landing.needed).tiles());
  }

  /// Takes the memory, all zero; the caller gives it back. Null where there is nothing to count. Waits for nothing of the
  /// caller's.
  status open(std::byte** memory) {
    *memory = nullptr;
    const std::int64_t bytes = tiles() * std::int64_t{sizeof(std::uint64_t)};
    if (bytes == 0) return {};
    if (status failed = core_.run.allocate(bytes, memory_kind::device, memory); !failed.ok()) return failed;
    sums_ = reinterpret_cast<std::uint64_t*>(*memory);
    found_.assign(static_cast<std::size_t>(tiles()), 0);
    typename Executor::lane lane = core_.run.open_own();
    return core_.run.write(lane, *memory, reinterpret_cast<const std::byte*>(found_.data()), bytes);
  }

  /// Enqueues landings that add up their digests; `sources` is a buffer of the lane's.
  status land(typename Executor::lane& lane, std::span<const land_job> jobs, std::span<const landed_part> parts,
              vector<land_digest>& into) {
    into.clear();
    std::size_t shared = 0;  // lands parts of several landings: not counted
    for (const landed_part& what : parts) shared += what.shared ? 1 : 0;
    if (shared == 0) {
      for (const landed_part& what : parts) into.push_back(place_of(what));
      return core_.run.land_digested(lane, jobs, into);
    }
    vector<land_job> counted, others;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      (parts[i].shared ? others : counted).push_back(jobs[i]);
      if (!parts[i].shared) into.push_back(place_of(parts[i]));
    }
    if (status failed = core_.run.land(lane, others); !failed.ok()) return failed;
    return core_.run.land_digested(lane, counted, into);
  }

  /// Under the model's lock: what a load will land.
  void note(std::span<const landed_part> parts) {
    for (const landed_part& what : parts)
      if (!what.shared) at(elements_, what.landing) += what.part.elements();
  }

  /// What arrived under a landing is gone: its sums begin anew, in the order of the lane.
  status forget(typename Executor::lane& lane, std::int32_t landing) {
    const std::int64_t tiles = count(landing);
    if (at(elements_, landing) == 0 || tiles == 0) return {};
    at(elements_, landing) = 0;
    const std::int64_t bytes = tiles * std::int64_t{sizeof(std::uint64_t)};
    const fill_job zero{.destination = reinterpret_cast<std::byte*>(sums_ + at(first_, landing)),
                        .rows = 1,
                        .row_bytes = bytes,
                        .row_stride_bytes = bytes};
    return core_.run.fill(lane, {&zero, 1});
  }

  /// Reads the sums and compares them with the sender's digests, as far as the same parts of tiles have landed here.
  /// Refuses by the tensor's name. Waits. Requires: the lane is behind all landings.
  status check(typename Executor::lane& lane, const digest_list& expected, report& found) {
    const std::int64_t bytes = tiles() * std::int64_t{sizeof(std::uint64_t)};
    if (bytes > 0)
      if (status failed = core_.run.read(lane, reinterpret_cast<std::byte*>(found_.data()),
                                         reinterpret_cast<const std::byte*>(sums_), bytes); !failed.ok())
        return failed;
    found.digests_checked = found.digests_unchecked = 0;
    for (const tile_digest& told : expected) {
      const std::int32_t id = core_.records.names.find(told.source);
      bool is_here = false;
      if (id != no_index)
        for (const std::int32_t l : at(core_.records.sources, core_.records.names[id].source).landings) {
          if (!is_counted(l) || digest_grid_of(told.part).tiles() != 1) continue;
          const landing_record& landing = at(core_.records.landings, l);
          const std::int64_t row = told.part.row_begin / digest_tile_rows, col = told.part.col_begin / digest_tile_cols;
          if (!(intersect(landing.needed, tile_at(row, col)) == told.part)) continue;
          is_here = true;
          const land_digest place = place_of({l, told.part});
          if (found_[static_cast<std::size_t>(at(first_, l) + first_sum(place))] != told.sum)
            return refuse(error_code::corrupt, told.source, "the sender's digest of " + to_string(told.part),
                          "other bytes");
        }
      ++(is_here ? found.digests_checked : found.digests_unchecked);
    }
    return {};
  }

  /// Appends what `check` has read, a tile of a landing each.
  void append(digest_list& list) const {
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(elements_.size()); ++l) {
      if (!is_counted(l)) continue;
      const landing_record& landing = at(core_.records.landings, l);
      auto next = found_.begin() + at(first_, l);
      for_each_tile(landing, [&](const rect& part) {
        list.push_back({at(core_.records.params, landing.param).name(),
                        std::string(at(core_.records.sources, landing.source).name), part, *next++});
      });
    }
  }

 private:
  static rect tile_at(std::int64_t row, std::int64_t col) {
    return {row * digest_tile_rows, (row + 1) * digest_tile_rows, col * digest_tile_cols, (col + 1) * digest_tile_cols};
  }
  std::int64_t tiles() const { return first_.back(); }
  std::int64_t count(std::int32_t l) const { return at(first_, l + 1) - at(first_, l); }
  bool is_counted(std::int32_t l) const {
    const std::int64_t needed = at(core_.records.landings, l).needed.elements();
    return needed > 0 && at(elements_, l) == needed;
  }

  land_digest place_of(const landed_part& what) const {
    const rect& needed = at(core_.records.landings, what.landing).needed;
    return {.sums = sums_ + at(first_, what.landing),
            .tiles_across = digest_grid_of(needed).across,
            .tile_row = needed.row_begin / digest_tile_rows,
            .tile_col = needed.col_begin / digest_tile_cols,
            .row = what.part.row_begin,
            .col = what.part.col_begin,
            .is_transposed = what.is_transposed};
  }

  model_core<Executor>& core_;
  vector<std::int64_t> first_ = {};      ///< per landing, and the end: its first sum
  vector<std::int64_t> elements_;        ///< per landing: that were given to `note`
  std::uint64_t* sums_ = nullptr;        ///< the executor's memory
  vector<std::uint64_t> found_ = {};     ///< what was read of it
};

}  // namespace wreload::detail
