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
#include "digest.hpp"
#include "scope.hpp"

namespace wreload {

/// Which form the bytes of a load have.
enum class load_form : std::uint8_t {
  checkpoint,  ///< as in a file: named, shaped and typed as the checkpoint tensor
  runtime,     ///< as the engine keeps it: named, shaped and typed as the runtime tensor; lands as it is
};

/// How an update reaches live storage.
enum class update_mode : std::uint8_t {
  direct,     ///< lands there; a failure leaves the model `undefined`
  layerwise,  ///< keeps each layer aside, in checkpoint form, until it is whole; a failure after that: `undefined`
  staged,     ///< keeps the whole update aside; `commit` is the only pause, and nothing before it touches live bytes
  swap,       ///< builds the next generation on an arena's spare pages; `commit` exchanges the pages
};

constexpr std::string_view name_of(update_mode mode) {
  switch (mode) {
    case update_mode::direct: return "direct";
    case update_mode::layerwise: return "layerwise";
    case update_mode::staged: return "staged";
    case update_mode::swap: return "swap";
  }
  return "?";
}

/// Memory for what `layerwise` and `staged` keep aside.
///
///   lent           the caller's, until the update has ended; `where` says what it is
///   budget_bytes   else: taken from `where` at `start`, given back at the end. `no_limit`: as much as it takes, while
///                  it loads
///   or_direct      layerwise: a layer that finds no room goes to live storage at once (the report names it); else such a
///                  load is refused
struct staging_memory {
  static constexpr std::int64_t no_limit = std::int64_t{1} << 62;

  std::span<std::byte> lent = {};
  std::int64_t budget_bytes = 0;
  memory_kind where = memory_kind::device;
  bool or_direct = false;
};

/// What `abort` (or a failure) can put back in the modes direct, layerwise and staged. Swap needs none.
enum class undo_mode : std::uint8_t {
  none,
  host,  ///< the bytes that the update overwrites are copied to the host first; the first write to a tensor waits for that
};

/// Options of `start`; views must live until it has returned.
struct start_options {
  update_mode mode = update_mode::direct;
  update_scope scope = {};
  stream_ref stream = {};                       ///< of the update's own lane, which also converts
  std::span<const stream_ref> readers = {};     ///< streams whose work reads weights
  engine_addresses addresses = {};              ///< checked before anything else
  std::optional<std::int64_t> base_version = {};  ///< refuse unless the model is at this version
  bool detect_changes = false;                  ///< digest the model after the update: one more read of all bytes
  staging_memory staging = {};                  ///< modes layerwise and staged
  undo_mode undo = undo_mode::none;
  std::span<const tile_digest> digests = {};    ///< the sender's, of checkpoint tensors (see `append_digests`): `prepare`
                                                ///< compares what has arrived with them. Modes staged, direct, swap
  bool digest_landed = false;                   ///< direct, swap: landings add up the digests of what they land, for
                                                ///< `update::landed_digests`; so it is where `digests` are given. Nothing
                                                ///< is then converted on its way. Takes 8 bytes a tile of device memory
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
