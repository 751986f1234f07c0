#pragma once
// The proof: the reloaded engine against a second one that was started cold from what the checkpoints say now.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <wreload/source/checkpoint.hpp>

#include "loading.hpp"

namespace reload {

namespace detail {

inline bool is_kept(const wr::registry& records, const wr::source_record& source) {
  for (const std::int32_t landing : source.landings)
    if (wr::at(records.params, wr::at(records.landings, landing).param).plan.spec.kept) return true;
  return false;
}

}  // namespace detail

// The last value of each tensor, whatever its spelling: all of the last checkpoint; from those before it, for a partial
// scope what later ones did not bring, else only `Kept` tensors that the last one left out. (The scale of a weight that
// has become BF16 may be among them: a cold start does not need it.)
inline std::vector<wr::checkpoint_tensor> last_values(const wr::registry& records,
                                                      std::span<const wr::checkpoint> checkpoints, bool partial) {
  std::vector<bool> have(records.sources.size(), false);
  std::vector<wr::checkpoint_tensor> values;
  for (std::size_t i = checkpoints.size(); i-- > 0;) {
    const bool is_last = i + 1 == checkpoints.size();
    for (const wr::checkpoint_tensor& found : checkpoints[i].tensors()) {
      const std::int32_t name = records.names.find(found.name);
      if (name == wr::no_index) continue;  // every tensor was loaded, so every name is known
      const std::int32_t source = records.names[name].source;
      const auto slot = static_cast<std::size_t>(source);
      if (have[slot] || (!is_last && !partial && !detail::is_kept(records, wr::at(records.sources, source)))) continue;
      have[slot] = true;
      values.push_back(found);
    }
  }
  return values;
}

// Compares every tensor that kernels read, the addresses, and the library's memory. The cold start takes tensor by
// tensor: what a feed could get wrong shows as a difference.
template <wr::executor Executor>
wr::status audit(engine<Executor>& live, std::span<const layer> layers, std::span<const wr::checkpoint> checkpoints,
                 bool partial, progress& shown, wr::audit_result* result) {
  engine<Executor> fresh(std::byte{0x5A});
  wr::status failed = fresh.build(layers);
  if (!failed.ok()) return within("audit", failed);
  const std::vector<wr::checkpoint_tensor> values = last_values(live.model().records(), checkpoints, partial);
  wr::report ignored;
  failed = send(fresh, {.tensors = values}, nullptr, "audit", shown, &ignored);
  if (failed.ok()) failed = live.model().audit(fresh.model(), live.addresses(), result);
  return within("audit", failed);
}

}  // namespace reload
