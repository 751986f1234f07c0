#pragma once
/// `report`: what an update did, as a plain record. source/report_json.hpp prints it.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../core/dtype.hpp"
#include "../core/status.hpp"

namespace wreload {

/// Whether a model may serve.
enum class model_state : std::uint8_t {
  live,       ///< the last update succeeded
  updating,   ///< an update is open
  undefined,  ///< never loaded, or an update failed after a live write: only a complete update helps
  in_doubt,   ///< a vote ended unknown after commit
  asleep,     ///< its pages are gone: after `sleep`, or because an exchange of pages failed half way
};

constexpr std::string_view name_of(model_state state) {
  switch (state) {
    case model_state::live: return "live";
    case model_state::updating: return "updating";
    case model_state::undefined: return "undefined";
    case model_state::in_doubt: return "in_doubt";
    case model_state::asleep: return "asleep";
  }
  return "?";
}

/// Tensors (each once, however many pieces; again after `retract`; ignored, foreign and runtime-form pieces one by one)
/// and their bytes.
struct load_count {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

/// Wall time of the stages of an update, in seconds.
struct stage_seconds {
  double load = 0;     ///< from `start` to `prepare`
  double prepare = 0;
  double commit = 0;   ///< enqueueing the conversions
  double publish = 0;  ///< waiting for them
};

struct report {
  std::int64_t version = 0;  ///< after a success: successful finishes, this one included
  load_count loaded = {};    ///< everything that was accepted, needed or not
  std::array<load_count, dtype_count> by_dtype = {};  ///< the same, indexed by dtype
  load_count not_needed = {};       ///< accepted, but no byte of it belongs to this rank
  load_count ignored = {};
  load_count foreign = {};
  std::int64_t not_sent = 0;        ///< tensors of the scope that did not have to come (kept, scale of a BF16 weight)
  std::int64_t converted_rows = 0;  ///< rows dequantised
  std::int64_t fused_rows = 0;      ///< those of them that were on their way to live storage, the others in place
  bool pages_exchanged = false;     ///< swap: what names *pages* (RDMA registrations, IPC exports, NCCL user buffers of the
                                    ///< arena) means the old ones and must be made anew
  std::int64_t aliased = 0;         ///< params derived by a map that live in their source's bytes (no pad)
  std::int64_t bound = 0;           ///< those with an allocation of their own (pads); their source has none
  std::int64_t shared_bytes = 0;    ///< of both: what a second copy of the sources would have taken
  std::optional<bool> changed = {}; ///< whether a byte differs from the last version; only where asked for
  std::int64_t launches = 0;
  std::int64_t replayed_buckets = 0;  ///< that did again what an earlier update did (see update/bucket.hpp)
  stage_seconds seconds = {};
  double pause_seconds = 0;         ///< from the first live write (swap: the exchange) to the end of `publish`
  std::int64_t staged_bytes = 0;    ///< most that was kept aside at one time
  std::int64_t undo_bytes = 0;      ///< of the host image
  std::int64_t digests_checked = 0;    ///< tiles of the sender's list that were compared
  std::int64_t digests_unchecked = 0;  ///< tiles that this rank holds in part or not at all, or that
                                       ///< no landing has counted (see `update::landed_digests`)
  std::vector<std::string> direct_layers = {};  ///< layerwise: those that found no room aside
  std::int64_t peak_extra_device_bytes = 0;  ///< device and pinned memory of the library, at the end, beyond what `seal` declared
  std::vector<std::string> missing = {};     ///< after a refused `finish`: names (with the part), at most 64
  std::vector<std::string> warnings = {};
  status first_error = {};          ///< the first refused load

  double gb_per_s() const {
    const double time = seconds.load + seconds.prepare + seconds.commit + seconds.publish;
    return time > 0 ? static_cast<double>(loaded.bytes) / time / 1e9 : 0;
  }
};

}  // namespace wreload
