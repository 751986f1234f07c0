#pragma once
/// The records of a model: layers, params, checkpoint tensors and landings, which refer to each other by index.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../core/index_list.hpp"
#include "../core/job.hpp"
#include "../layout/landing.hpp"

namespace wreload {

/// Records refer to each other by 32-bit index.
template <class Record>
Record& at(std::vector<Record>& records, std::int32_t index) {
  return records[static_cast<std::size_t>(index)];
}
template <class Record>
const Record& at(const std::vector<Record>& records, std::int32_t index) {
  return records[static_cast<std::size_t>(index)];
}

/// Memory of one runtime tensor; `row_stride_bytes` 0 means dense rows.
struct storage {
  void* data = nullptr;
  std::int64_t row_stride_bytes = 0;

  storage() = default;
  storage(void* first, std::int64_t stride = 0) : data(first), row_stride_bytes(stride) {}  // NOLINT: a pointer will do
};

/// A registered runtime tensor.
struct param_record {
  std::byte* data = nullptr;
  std::int64_t row_stride_bytes = 0;
  std::int32_t first_landing = 0;  ///< its landings are neighbours in registry::landings
  std::int32_t landing_count = 0;
  std::int32_t layer = no_index;     ///< index into registry::layers
  map_index map = unmapped;          ///< index into registry::maps
  planned_param plan = {};

  const std::string& name() const { return plan.name; }
  std::byte* row(std::int64_t index) const { return data + index * row_stride_bytes; }
  /// First byte of the slot that has this row of the matrix form before the map.
  std::byte* slot_of(std::int64_t index) const { return row(index / plan.slot_rows * plan.slot_storage_rows); }
};

/// A layer: params and landings that are neighbours in the registry.
struct layer_record {
  std::string name = {};
  std::int32_t first_param = 0;
  std::int32_t param_count = 0;
  std::int32_t first_landing = 0;
  std::int32_t landing_count = 0;  ///< without those of second names (twins)
  std::int32_t first_computed = 0;
  std::int32_t computed_count = 0;
};

/// A checkpoint tensor of the model. Of millions of loads each reads one: small, what they read first.
struct source_record {
  dtype_set accepted = {};                ///< what all its landings accept
  std::int32_t first_name = no_index;     ///< its names are neighbours in registry::names
  index_list landings = {};               ///< empty: another rank's
  bool bundled = false;                   ///< [experts, rows, cols]: its matrix form has experts * rows rows
  shape extents = {};
  std::string_view name = {};             ///< in the registry's text
};

/// A landing with global indices.
struct landing_record {
  std::int32_t param = no_index;
  std::int32_t source = no_index;
  rect needed = {};
  std::int64_t local_row = 0;
  std::int32_t scale = no_index;   ///< landing of the scale, for a weight
  std::int32_t weight = no_index;  ///< landing of the weight, for a scale
  std::int32_t row_phase = 0;
  std::int32_t col_phase = 0;
  std::int32_t twins = no_index;   ///< landings with the same group share their bytes under several names

  /// The landing's place in the param's matrix.
  rect local() const { return {local_row, local_row + needed.rows(), 0, needed.cols()}; }
};

/// A computed param: what it reads, as global indices.
struct computed_record {
  std::int32_t param = no_index;
  std::vector<std::int32_t> sources = {};  ///< params; of a product: one per factor
};

/// A name that may be loaded: a source under one of its spellings.
struct name_record {
  std::int32_t source = no_index;
  std::int32_t spelling = 0;  ///< 0: the source's own name
};

}  // namespace wreload
