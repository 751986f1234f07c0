#pragma once
/// What callers hand to `start` and `load`: plain records.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "../core/box.hpp"
#include "../core/tensor_ref.hpp"
#include "addresses.hpp"
#include "scope.hpp"

namespace wreload {

/// Which form the bytes of a load have.
enum class load_form : std::uint8_t {
  checkpoint,  ///< as in a file: named, shaped and typed as the checkpoint tensor
  runtime,     ///< as the engine keeps it: named, shaped and typed as the runtime tensor; lands as it is
};

/// How an update reaches live storage. This build has `direct`; the others are refused at `start`.
enum class update_mode : std::uint8_t { direct, layerwise, staged, swap };

/// Options of `start`; views must live until it has returned.
struct start_options {
  update_mode mode = update_mode::direct;
  update_scope scope = {};
  stream_ref stream = {};                       ///< of the update's own lane, which also converts
  std::span<const stream_ref> readers = {};     ///< streams whose work reads weights
  engine_addresses addresses = {};              ///< checked before anything else
  std::optional<std::int64_t> base_version = {};  ///< refuse unless the model is at this version
  bool detect_changes = false;                  ///< digest the model after the update: one more read of all bytes
};

/// A name that was looked up once; valid for the life of the model.
struct tensor_id {
  std::int32_t index = no_index;
  bool is_known() const { return index != no_index; }
};

/// One tensor, or a part of it, to load.
struct piece {
  std::string_view name = {};  ///< or `id`
  tensor_ref tensor = {};
  box part = {};               ///< in checkpoint coordinates (form runtime: in the param's matrix form)
  load_form form = load_form::checkpoint;
  tensor_id id = {};
};

/// Where bytes of a checkpoint tensor may be written directly: `rows` rows of `cols` elements of `type`.
struct direct_landing {
  std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride_bytes = 0;
  dtype type = dtype::none;
};

}  // namespace wreload
