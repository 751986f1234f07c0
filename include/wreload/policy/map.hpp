#pragma once
/// `Map` and its steps: in which order a param's bytes lie, and how they are padded. Applied while landing.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>

#include "../core/dtype.hpp"
#include "../core/shape.hpp"
#include "../core/storage_map.hpp"
#include "policy.hpp"

namespace wreload {

/// What a map asks of a slot and does not get; `ok()` where it gets everything. The texts have static storage.
struct map_need {
  std::string_view expected = {};  ///< `padded rows in multiples of 32 (ShuffleRows<32>)`
  std::int64_t found = 0;
  std::string_view unit = {};      ///< of `found`: `padded rows`

  [[nodiscard]] constexpr bool ok() const { return expected.empty(); }
  /// `200 padded rows`, for `status::got`.
  std::string got() const { return std::to_string(found) + " " + std::string(unit); }
};

/// A map applied to one slot of known extents.
struct resolved_map {
  std::int64_t padded_rows = 0;  ///< of the matrix that the map is of
  std::int64_t padded_cols = 0;  ///< in elements of the storage dtype (a packed fp4 pair is one)
  std::int64_t half_rows = 0;    ///< padded rows of one half: the second half starts there; 0: the slot has no halves
  storage_map map = {};          ///< of the *padded* checkpoint matrix

  /// The slot's storage: rows and columns exchanged where it is MN-major.
  constexpr std::int64_t storage_rows() const { return map.mn_major_bytes == 0 ? padded_rows : padded_cols; }
  constexpr std::int64_t storage_cols() const { return map.mn_major_bytes == 0 ? padded_cols : padded_rows; }
};

/// A `Map` with its types erased. Default-constructed: row-major in checkpoint order, no pad.
struct map_spec {
  std::int64_t pad_rows = 1;  ///< rows (of each half, where a step has halves) become a multiple of this
  std::int64_t pad_cols = 1;  ///< columns become a multiple of this, in *values*: a packed fp4 pair is two
  std::array<row_step_kind, max_row_steps> steps = {};
  bool swizzled = false;
  bool mn_major = false;
  friend constexpr bool operator==(const map_spec&, const map_spec&) = default;

  constexpr bool has(row_step_kind kind) const { return std::find(steps.begin(), steps.end(), kind) != steps.end(); }
  /// Rows lie one below the other in checkpoint order; at most pads between them.
  constexpr bool keeps_order() const { return steps == decltype(steps){} && !swizzled && !mn_major; }
  constexpr bool has_halves() const { return has(row_step_kind::gated_interleave) || has(row_step_kind::swap_halves); }

  /// The extents of one slot after `PadToMultiple` alone; `resolve` gives those of its storage.
  constexpr std::int64_t rows_after_pad(std::int64_t rows) const {
    const std::int64_t pieces = has_halves() ? 2 : 1;
    return ceil_div(ceil_div(rows, pieces), pad_rows) * pad_rows * pieces;
  }
  constexpr std::int64_t cols_after_pad(std::int64_t cols, dtype type) const {
    const std::int64_t values = type == dtype::fp4_e2m1x2 ? 2 : 1;  // per element; a pad fills whole elements
    const std::int64_t multiple = std::lcm(pad_cols, values);
    return ceil_div(cols * values, multiple) * multiple / values;
  }

  /// The first demand that one slot of `rows` rows of `type` does not meet.
  constexpr map_need unmet(std::int64_t rows, dtype type) const {
    if (swizzled && bytes_of(type) != 1)
      return {"elements of 1 byte (Swizzle128x4)", bytes_of(type), "bytes an element"};
    if (mn_major && bytes_of(type) != 4)
      return {"elements of 4 bytes (MnMajor)", bytes_of(type), "bytes an element"};
    if (has_halves() && rows % 2 != 0)
      return {has(row_step_kind::swap_halves) ? "two equal halves (SwapHalves)" : "two equal halves (GatedInterleave)",
              rows, "rows"};
    const std::int64_t padded = rows_after_pad(rows);
    const bool by16 = has(row_step_kind::shuffle16), by32 = has(row_step_kind::shuffle32);
    if (swizzled && (by16 || by32) && padded % 128 != 0)
      return {by16 ? "padded rows in multiples of 128 (ShuffleRows<16>, Swizzle128x4)"
                   : "padded rows in multiples of 128 (ShuffleRows<32>, Swizzle128x4)", padded, "padded rows"};
    if (by16 && padded % 16 != 0) return {"padded rows in multiples of 16 (ShuffleRows<16>)", padded, "padded rows"};
    if (by32 && padded % 32 != 0) return {"padded rows in multiples of 32 (ShuffleRows<32>)", padded, "padded rows"};
    return {};
  }

  /// The map of one slot of (rows, cols) elements of `type`. Requires: `unmet(rows, type).ok()`. The caller checks that
  /// the padded extents are a valid `shape`.
  constexpr resolved_map resolve(std::int64_t rows, std::int64_t cols, dtype type) const {
    resolved_map slot = {.padded_rows = rows_after_pad(rows), .padded_cols = cols_after_pad(cols, type)};
    if (has_halves()) slot.half_rows = slot.padded_rows / 2;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool halves = steps[i] == row_step_kind::gated_interleave || steps[i] == row_step_kind::swap_halves;
      slot.map.steps[i] = {steps[i], halves ? slot.half_rows : 0};
    }
    if (mn_major) {
      slot.padded_rows = ceil_div(slot.padded_rows, 4) * 4;
      slot.map.mn_major_bytes = bytes_of(type);
    }
    if (!swizzled) return slot;
    slot.padded_rows = ceil_div(slot.padded_rows, 128) * 128;
    slot.padded_cols = ceil_div(slot.padded_cols, 4) * 4;
    slot.map.swizzled = true;
    slot.map.tile_cols = slot.padded_cols / 4;
    return slot;
  }

  constexpr void append(row_step_kind kind) { *std::find(steps.begin(), steps.end(), row_step_kind::none) = kind; }
};

/// `PadToMultiple<128, 64>, ShuffleRows<32>, Swizzle128x4`; `identity` where the spec changes nothing.
inline std::string to_string(const map_spec& spec) {
  std::string text;
  const auto append = [&text](const std::string& step) { text += (text.empty() ? "" : ", ") + step; };
  if (spec.pad_rows != 1 || spec.pad_cols != 1)
    append("PadToMultiple<" + std::to_string(spec.pad_rows) + ", " + std::to_string(spec.pad_cols) + ">");
  for (const row_step_kind kind : spec.steps) {
    if (kind == row_step_kind::shuffle16) append("ShuffleRows<16>");
    if (kind == row_step_kind::shuffle32) append("ShuffleRows<32>");
    if (kind == row_step_kind::gated_interleave) append("GatedInterleave");
    if (kind == row_step_kind::swap_halves) append("SwapHalves");
  }
  if (spec.swizzled) append("Swizzle128x4");
  if (spec.mn_major) append("MnMajor");
  return text.empty() ? "identity" : text;
}

/// Where a step may stand in a `Map`: each place once, in this order, since a later step would tear apart what an
/// earlier one reads.
enum class map_place : std::uint8_t { pad, swap, interleave, shuffle, swizzle, mn_major };

template <class Step>
concept map_step = requires(map_spec& spec) {
  map_place(Step::place);
  Step::add_to(spec);
};

/// Step: zero rows and columns, so that `Rows` and `Cols` divide the extents; columns count *values* (two to a packed
/// fp4 pair). With `SwapHalves` or `GatedInterleave` behind it each half is padded by itself, else the slot at its end.
///
///     static_assert(Map<PadToMultiple<32, 32>>::spec.resolve(200, 40, dtype::fp4_e2m1x2).padded_cols == 48);
template <std::int64_t Rows, std::int64_t Cols>
struct PadToMultiple {
  static_assert(Rows > 0 && Cols > 0, "PadToMultiple: multiples are positive; write 1 for a side without pad");
  static constexpr map_place place = map_place::pad;
  static constexpr void add_to(map_spec& spec) { spec.pad_rows = Rows, spec.pad_cols = Cols; }
};

/// Step: [w1; w3] lies as [w3; w1].
struct SwapHalves {
  static constexpr map_place place = map_place::swap;
  static constexpr void add_to(map_spec& spec) { spec.append(row_step_kind::swap_halves); }
};

/// Step: the rows of the two halves alternate, as TRT-LLM's gated experts want before the shuffle.
struct GatedInterleave {
  static constexpr map_place place = map_place::interleave;
  static constexpr void add_to(map_spec& spec) { spec.append(row_step_kind::gated_interleave); }
};

/// Step: TRT-LLM's row shuffle in blocks of 16 or 32 rows (32 where epilogue_tile_m is a multiple of 128).
template <int Block>
struct ShuffleRows {
  static_assert(Block == 16 || Block == 32,
                "ShuffleRows: kernels shuffle blocks of 16 or 32 rows; write ShuffleRows<16> or ShuffleRows<32>");
  static constexpr map_place place = map_place::shuffle;
  static constexpr void add_to(map_spec& spec) {
    spec.append(Block == 16 ? row_step_kind::shuffle16 : row_step_kind::shuffle32);
  }
};

/// Step: the 128x4 order of block scales; pads rows to 128 and columns to 4 after all other steps.
struct Swizzle128x4 {
  static constexpr map_place place = map_place::swizzle;
  static constexpr void add_to(map_spec& spec) { spec.swizzled = true; }
};

/// Step: MN-major, as TMA reads FP32 scales: storage is the transpose [cols, r(rows, 4)], so that its pitch is a
/// multiple of 4 elements (16 bytes); element (row, col) is number col * r(rows, 4) + row. Pads after all other steps.
///
///     static_assert(Map<MnMajor>::spec.resolve(3, 5, dtype::fp32).storage_cols() == 4);
struct MnMajor {
  static constexpr map_place place = map_place::mn_major;
  static constexpr void add_to(map_spec& spec) { spec.mn_major = true; }
};

namespace detail {

template <map_step... Steps>
constexpr bool stands(map_place place) {
  return ((Steps::place == place) || ...);
}
template <map_step... Steps>
constexpr bool stands_twice(map_place place) {
  return ((Steps::place == place ? 1 : 0) + ... + 0) > 1;
}
/// Whether a step stands behind one of this place.
template <map_step... Steps>
constexpr bool has_behind(map_place place) {
  bool behind = false, has = false;
  ((has = has || (behind && Steps::place != place), behind = behind || Steps::place == place), ...);
  return has;
}
/// Whether a step of this place stands behind one that must come after it.
template <map_step... Steps>
constexpr bool stands_late(map_place place) {
  bool late = false, behind = false;
  ((late = late || (behind && Steps::place == place), behind = behind || Steps::place > place), ...);
  return late;
}

struct no_map {
  static constexpr map_spec spec = {};
};

}  // namespace detail

/// Axis: map. A param's bytes in the order that its kernels read, by steps from left to right. A bijection on the
/// padded matrix of each slot (a dense weight, or one expert), applied to every byte on its way into storage.
///
///     using map = Map<PadToMultiple<128, 4>, ShuffleRows<32>, Swizzle128x4>;
///     static_assert(map::spec.swizzled && map::spec.resolve(200, 5, dtype::fp8_e4m3).padded_rows == 256);
///     static_assert(!Map<ShuffleRows<32>>::spec.unmet(200, dtype::fp4_e2m1x2).ok());
template <map_step... Steps>
struct Map {
  using axis = wreload::axis::map;

  static_assert(sizeof...(Steps) > 0, "Map: lists no step; add one, or leave Map out for checkpoint order");
  static_assert(!detail::stands_twice<Steps...>(map_place::pad), "PadToMultiple: stands twice in the Map; keep one");
  static_assert(!detail::stands_twice<Steps...>(map_place::swap),
                "SwapHalves: stands twice in the Map, which undoes it; keep one or none");
  static_assert(!detail::stands_twice<Steps...>(map_place::interleave),
                "GatedInterleave: stands twice in the Map; keep one");
  static_assert(!detail::stands_twice<Steps...>(map_place::shuffle),
                "ShuffleRows: stands twice in the Map, which does not undo it; keep one");
  static_assert(!detail::stands_twice<Steps...>(map_place::swizzle),
                "Swizzle128x4: stands twice in the Map and would swizzle swizzled bytes; keep one");
  static_assert(!detail::stands_twice<Steps...>(map_place::mn_major),
                "MnMajor: stands twice in the Map, which undoes it; keep one or none");
  static_assert(!detail::stands<Steps...>(map_place::mn_major) || !detail::stands<Steps...>(map_place::swizzle),
                "MnMajor: another order than Swizzle128x4; keep one of the two");
  static_assert(!detail::has_behind<Steps...>(map_place::mn_major),
                "MnMajor: leaves no whole rows to the steps behind it; list it last in the Map");
  static_assert(!detail::stands_late<Steps...>(map_place::pad),
                "PadToMultiple: pads checkpoint rows and columns; list it first in the Map");
  static_assert(!detail::stands_late<Steps...>(map_place::swap),
                "SwapHalves: needs whole halves; list it before GatedInterleave, ShuffleRows and Swizzle128x4");
  static_assert(!detail::stands_late<Steps...>(map_place::interleave),
                "GatedInterleave: needs whole halves; list it before ShuffleRows and Swizzle128x4");
  static_assert(!detail::stands_late<Steps...>(map_place::shuffle),
                "ShuffleRows: needs whole rows; list Swizzle128x4 last in the Map");

  /// The erased record.
  static constexpr map_spec spec = [] {
    map_spec made;
    (Steps::add_to(made), ...);
    return made;
  }();
};

}  // namespace wreload
