#pragma once
/// `model_core`: what a model and its open update share.

#include <atomic>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../core/light_lock.hpp"
#include "../core/on_use.hpp"
#include "../executor/executor.hpp"
#include "ledger.hpp"
#include "pattern.hpp"
#include "plan.hpp"
#include "registry.hpp"
#include "report.hpp"

namespace wreload::detail {

/// Monotonic time in seconds.
inline double seconds_now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// For loops that wait for something rare: 20 us.
inline void sleep_briefly() {
  const timespec pause = {0, 20'000};
  nanosleep(&pause, nullptr);
}

inline bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  for (const std::string& pattern : patterns)
    if (matches(pattern, name)) return true;
  return false;
}

/// What belongs to the bytes of a generation.
struct generation {
  std::int64_t version = 0;
  model_state state = model_state::undefined;
  std::vector<std::int64_t> layer_versions = {};
  std::vector<std::uint8_t> kept = {};  ///< see `kept_values::valid`
  std::uint64_t digest = 0;
  bool has_digest = false;
};

/// Params that are derived by a map, and what their sources do not take.
struct alias_count {
  std::int64_t aliased = 0;
  std::int64_t bound = 0;
  std::int64_t shared_bytes = 0;

  void set(report& to) const {
    to.aliased = aliased;
    to.bound = bound;
    to.shared_bytes = shared_bytes;
  }
};

/// State of a model. `lock` guards the ledger and the update's books; executors are called outside it, except where
/// the order of two lanes matters.
template <executor Executor>
struct model_core {
  template <class... Args>
  explicit model_core(Args&&... args) : run(static_cast<Args&&>(args)...) {}

  Executor run;
  dependent<registry, Executor> records = {};
  dependent<ledger, Executor> books{records};
  dependent<basic_name_order<>, Executor> order = {};  ///< of the senders' names
  std::vector<std::string> ignored = {};
  std::vector<std::string> foreign = {};
  dependent<std::vector<dequant_key>, Executor> keys = {};  ///< distinct conversions of the model
  std::vector<std::int32_t> key_of = {};    ///< per param: index into keys, or -1
  light_lock lock = {};
  bool indexed = false;                     ///< `seal` has got past what depends on the layers
  bool sealed = false;
  bool update_open = false;
  std::atomic<model_state> state = model_state::undefined;
  std::atomic<std::int64_t> version = 0;
  std::int64_t latest_version = 0;          ///< `version`, but for rollbacks
  std::vector<std::int64_t> layer_versions = {};  ///< per layer: the update that wrote it last
  typename Executor::arena* pages = nullptr;      ///< that the params lie in; null: somewhere else
  std::optional<generation> previous = {};        ///< on the arena's spare pages
  std::optional<update_plan<Executor>> plan = {};  ///< of the last update that came in buckets
  std::vector<std::int32_t> equal_params = {};     ///< whose shards should be equal; flags behind the twin groups' say if not
  alias_count aliases = {};
  std::int64_t sealed_bytes = 0;            ///< executor memory right after `seal`
  std::uint64_t last_digest = 0;            ///< of all tensors, where the last update asked for it
  bool has_digest = false;

  std::int32_t equal_flag(std::size_t index) const { return static_cast<std::int32_t>(records.twin_groups.size() + index); }

  generation current() const { return {version, state, layer_versions, books.kept().valid(), last_digest, has_digest}; }
  void become(const generation& other) {
    version = other.version;
    state = other.state;
    layer_versions = other.layer_versions;
    books.kept().restore(other.kept);
    last_digest = other.digest;
    has_digest = other.has_digest;
  }
  /// An exchange has failed half way: there are no pages, as in sleep, and nothing was saved.
  void lose_pages() {
    (void)pages->drop();
    previous.reset();
    books.kept().restore(std::vector<std::uint8_t>(records.sources.size()));
    has_digest = false;
    state = model_state::asleep;
  }
};

}  // namespace wreload::detail
