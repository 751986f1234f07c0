#pragma once
/// `auditor`: compares a model's tensors with another model, a snapshot or digests.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../core/on_use.hpp"
#include "addresses.hpp"
#include "audit.hpp"
#include "digest.hpp"
#include "model_core.hpp"

namespace wreload::detail {

template <executor Executor>
class auditor {
  template <class T>
  using vector = dependent<std::vector<T>, Executor>;
  using audit_result = dependent<wreload::audit_result, Executor>;
  using model_snapshot = dependent<wreload::model_snapshot, Executor>;
  using digest_list = dependent<wreload::digest_list, Executor>;

 public:
  explicit auditor(model_core<Executor>& core) : core_(core), lane_(core.run.open_own()) {}

  status against(const dependent<registry, Executor>& other, const engine_addresses& addresses, audit_result* result) {
    return compare(addresses, result, [&](const param_record& param, std::int64_t* first) {
      const std::int32_t id = other.find_param(param.name());
      const param_record* twin = id == no_index ? nullptr : &at(other.params, id);
      if (twin == nullptr || !(twin->plan.extents == param.plan.extents) ||
          twin->plan.spec.runtime != param.plan.spec.runtime)
        return not_comparable(result);
      return core_.run.first_difference(
          lane_,
          {param.data, twin->data, param.plan.rows, param.plan.row_bytes(), param.row_stride_bytes,
           twin->row_stride_bytes},
          first);
    });
  }

  status against(const model_snapshot& before, const engine_addresses& addresses, audit_result* result) {
    return compare(addresses, result, [&](const param_record& param, std::int64_t* first) {
      const auto same_name = [&](const auto& tensor) { return tensor.name == param.name(); };
      const auto found = std::find_if(before.tensors.begin(), before.tensors.end(), same_name);
      if (found == before.tensors.end() || found->bytes.size() != static_cast<std::size_t>(param.plan.bytes()))
        return not_comparable(result);
      vector<std::byte> now;
      if (status failed = read(param, now); !failed.ok()) return failed;
      for (std::size_t i = 0; i < now.size() && *first < 0; ++i)
        if (now[i] != found->bytes[i]) *first = static_cast<std::int64_t>(i);
      return status{};
    });
  }

  /// Compares tile by tile what both sides cover equally, whatever ranks they come from.
  status against(const digest_list& expected, const engine_addresses& addresses, audit_result* result) {
    digest_list ours;
    if (status failed = digest_tiles(core_.run, lane_, core_.records, ours); !failed.ok()) return failed;
    count_tensors(addresses, result);
    const vector<tile_sum> left = sum_tiles(ours), right = sum_tiles(expected);
    auto other = right.begin();
    for (const tile_sum& tile : left) {
      while (other != right.end() && is_before(*other, tile)) ++other;
      if (other == right.end() || is_before(tile, *other) || other->elements != tile.elements) {
        ++result->not_comparable;
      } else if (other->sum != tile.sum &&
                 (result->mismatched.empty() || result->mismatched.back().name != tile.param)) {
        result->mismatched.push_back(
            {std::string(tile.param), tile.row * digest_tile_rows, tile.col * digest_tile_cols});
      }
    }
    return {};
  }

  status copy(model_snapshot* to) {
    return copy(to, [](const param_record& param) { return !param.plan.spec.retired; });
  }
  template <class Which>
  status copy(model_snapshot* to, Which&& which) {
    to->tensors.clear();
    for (const param_record& param : core_.records.params) {
      if (!which(param)) continue;
      to->tensors.push_back({param.name(), {}});
      if (status failed = read(param, to->tensors.back().bytes); !failed.ok()) return failed;
    }
    return {};
  }

 private:
  /// One tile of a global tensor: what a list covers of it.
  struct tile_sum {
    std::string_view param, source;
    std::int64_t row = 0, col = 0;  ///< of the tile grid
    std::int64_t elements = 0;
    std::uint64_t sum = 0;
  };
  static bool is_before(const tile_sum& a, const tile_sum& b) {
    if (a.param != b.param) return a.param < b.param;
    if (a.source != b.source) return a.source < b.source;
    return a.row != b.row ? a.row < b.row : a.col < b.col;
  }

  /// Adds up the parts of each tile, sorted; parts that several ranks hold alike (replicas) count once.
  static vector<tile_sum> sum_tiles(const digest_list& list) {
    struct part {
      tile_sum tile;
      rect where;
    };
    vector<part> parts;
    for (const tile_digest& each : list)
      parts.push_back({{each.param, each.source, each.part.row_begin / digest_tile_rows,
                        each.part.col_begin / digest_tile_cols, each.part.elements(), each.sum},
                       each.part});
    std::sort(parts.begin(), parts.end(), [](const part& a, const part& b) {
      if (is_before(a.tile, b.tile) || is_before(b.tile, a.tile)) return is_before(a.tile, b.tile);
      if (a.where.row_begin != b.where.row_begin) return a.where.row_begin < b.where.row_begin;
      return a.where.col_begin < b.where.col_begin;
    });
    vector<tile_sum> tiles;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool same_tile = i > 0 && !is_before(parts[i - 1].tile, parts[i].tile);
      if (same_tile && parts[i].where == parts[i - 1].where && parts[i].tile.sum == parts[i - 1].tile.sum) continue;
      if (!same_tile) {
        tiles.push_back(parts[i].tile);
      } else {
        tiles.back().elements += parts[i].tile.elements;
        tiles.back().sum += parts[i].tile.sum;
      }
    }
    return tiles;
  }

  static status not_comparable(audit_result* result) {
    ++result->not_comparable;
    return {};
  }

  void count_tensors(const engine_addresses& addresses, audit_result* result) {
    *result = {};
    for (const param_record& param : core_.records.params)
      ++(param.plan.spec.retired ? result->retired : result->compared);
    result->moved = moved_tensors(core_.records, addresses);
    result->memory_growth = core_.run.allocated_bytes() - core_.sealed_bytes;
  }

  /// Calls `difference(param, &first_byte)` per tensor that kernels read.
  template <class Difference>
  status compare(const engine_addresses& addresses, audit_result* result, Difference&& difference) {
    count_tensors(addresses, result);
    for (const param_record& param : core_.records.params) {
      if (param.plan.spec.retired || param.plan.bytes() == 0) continue;
      std::int64_t first = -1;
      if (status failed = difference(param, &first); !failed.ok()) return failed;
      if (first < 0) continue;
      const std::int64_t element = bytes_of(param.plan.spec.runtime);
      result->mismatched.push_back(
          {param.name(), first / param.plan.row_bytes(), first % param.plan.row_bytes() / element});
    }
    return {};
  }

  status read(const param_record& param, vector<std::byte>& bytes) {
    const std::int64_t row_bytes = param.plan.row_bytes();
    bytes.resize(static_cast<std::size_t>(param.plan.bytes()));
    if (bytes.empty()) return {};  // null storage
    if (param.row_stride_bytes == row_bytes)
      return core_.run.read(lane_, bytes.data(), param.data, param.plan.bytes());
    for (std::int64_t r = 0; r < param.plan.rows; ++r)
      if (status failed = core_.run.read(lane_, bytes.data() + r * row_bytes, param.row(r), row_bytes); !failed.ok())
        return failed;
    return {};
  }

  model_core<Executor>& core_;
  typename Executor::lane lane_;
};

}  // namespace wreload::detail
