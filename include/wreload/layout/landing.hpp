#pragma once
/// Landings: where in runtime storage the bytes of which checkpoint tensor go. Plain records without addresses;
/// layout/plan_layer.hpp makes them.

#include <cstdint>
#include <string>
#include <vector>

#include "../core/box.hpp"
#include "../core/dtype.hpp"
#include "../core/storage_map.hpp"
#include "param.hpp"

namespace wreload {

inline constexpr std::int32_t no_index = -1;

/// A checkpoint tensor that a layer reads (or knows and does not need: an expert of another rank).
struct planned_source {
  std::string name = {};
  std::vector<std::string> spellings = {};  ///< other names; one of them all in an update
  std::vector<std::string> twins = {};      ///< second names for the same bytes
  shape extents = {};                       ///< of the whole checkpoint tensor
  bool bundled = false;                     ///< [experts, rows, cols]: its matrix form has experts * rows rows
  dtype_set accepted = {};                  ///< dtypes that may be loaded
};

/// One landing: the part `needed` of a source goes to the rows of a param from `local_row` on, from column 0.
struct planned_landing {
  std::int32_t source = no_index;  ///< index into layer_plan::sources
  rect needed = {};                ///< in the source's matrix form; never empty
  std::int64_t local_row = 0;
  std::int32_t scale = no_index;   ///< the landing, in the param that scales this one, that covers the same part
  std::int32_t row_phase = 0;      ///< rows between the start of the first scale block and the first needed row
  std::int32_t col_phase = 0;
};

/// Storage that no checkpoint tensor covers; zero. In the param's matrix form, before its map.
struct planned_pad {
  std::int64_t local_row = 0;
  std::int64_t rows = 0;
  std::int64_t local_col = 0;
  std::int64_t cols = 0;
};

/// One factor of a computed param: values of another param of the layer, per result or reduced by `Max`.
struct planned_factor {
  std::int32_t param = no_index;  ///< index into layer_plan::params
  std::int64_t first = 0;         ///< in elements of that param
  std::int64_t stride = 0;        ///< from one result to the next
  std::int64_t count = 1;         ///< values under the maximum
  std::int64_t across = 0;        ///< from one of them to the next
  bool inverted = false;          ///< each value, before the maximum
};

/// A runtime tensor of a layer.
struct planned_param {
  std::string name = {};         ///< `<layer>.<param>`
  param_spec spec = {};          ///< with the dtypes filled in
  shape extents = {};            ///< local, as the engine sees it
  std::int64_t rows = 0;         ///< matrix form of its storage
  std::int64_t cols = 0;
  std::vector<planned_landing> landings = {};
  std::vector<planned_pad> pads = {};
  std::int64_t slot_rows = 0;    ///< rows of one expert's part, pads included; the whole where nothing is stacked.
                                 ///< Before the map, as `local_row` of landings and pads
  std::int64_t slot_storage_rows = 0;            ///< the same in storage: its columns where the map is MN-major
  storage_map map = {};          ///< of each slot: from the matrix form to bytes
  std::int64_t computed_values = 0;              ///< of a product
  std::vector<planned_factor> factors = {};      ///< of a product
  std::vector<std::int32_t> launch_sources = {}; ///< of a launch: indices into layer_plan::params

  std::int64_t row_bytes() const { return cols * bytes_of(spec.runtime); }
  std::int64_t bytes() const { return rows * row_bytes(); }
  /// Bytes of what its source would hold in checkpoint order: an alias where the map adds none.
  std::int64_t pad_bytes() const {
    std::int64_t bytes = 0;
    for (const planned_pad& pad : pads) bytes += pad.rows * pad.cols * bytes_of(spec.runtime);
    return bytes;
  }
  /// [slots, rows, cols], slot after slot.
  bool is_stack() const {
    return extents.rank() == 3 && extents[1] == slot_storage_rows && extents[2] == cols &&
           extents[0] * extents[1] == rows;
  }
  /// A param derived by a map is where its source lives: that one has no storage.
  bool has_storage() const { return spec.lives_in < 0; }
};

/// Everything `add` needs to know of a layer.
struct layer_plan {
  std::string name = {};
  std::vector<planned_param> params = {};
  std::vector<planned_source> sources = {};
};

}  // namespace wreload
