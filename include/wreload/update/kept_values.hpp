#pragma once
/// `kept_values`: values that may stay away from an update, since an earlier one has brought them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../core/on_use.hpp"
#include "admission.hpp"
#include "registry.hpp"

namespace wreload {

/// Of a kept param the value of the last successful update serves: in an update that has not written it, and after each
/// one that has left it as it was (undone, or never live). Of an update that wrote it and whose writes lasted the new
/// value serves after a success, and none after a failure.
template <class Use = on_use>
class basic_kept_values {
 public:
  explicit basic_kept_values(const basic_registry<Use>& records) : records_(records) {}

  /// Sizes the tables; the registry is indexed by now.
  void seal() {
    written_.assign(records_.sources.size(), false);
    valid_.assign(records_.sources.size(), false);
  }

  /// No update has written anything: before one begins, and after it has ended.
  void clear() { std::fill(written_.begin(), written_.end(), false); }
  void note_written(std::int32_t source) { at(written_, source) = 1; }

  /// Whether the last successful update's value of a landing serves: this one has not written it (not even to retract
  /// it).
  bool serves(std::int32_t l) const {
    if (!at(records_.params, at(records_.landings, l).param).plan.spec.kept) return false;
    bool is_valid = false, is_written = false;
    records_.for_each_twin(l, [&](std::int32_t each) {
      is_valid |= at(valid_, at(records_.landings, each).source) != 0;
      is_written |= at(written_, at(records_.landings, each).source) != 0;
    });
    return is_valid && !is_written;
  }

  /// An update whose writes lasted ends: after a success the values that came are valid, after a failure they are not.
  void settle(bool succeeded) {
    for (std::size_t i = 0; i < written_.size(); ++i) {
      if (written_[i] == 0) continue;
      valid_[i] = succeeded;
      if (succeeded) continue;
      for (const std::int32_t l : records_.sources[i].landings)  // nor is it what another name of these bytes brought
        records_.for_each_twin(l, [&](std::int32_t each) { at(valid_, at(records_.landings, each).source) = 0; });
    }
  }

  /// Per source: whether a successful update has brought its value.
  const std::vector<std::uint8_t>& valid() const { return valid_; }
  void restore(const std::vector<std::uint8_t>& valid) { valid_ = valid; }

 private:
  const basic_registry<Use>& records_;
  dependent<std::vector<std::uint8_t>, Use> written_ = {};  ///< per source: in this update
  dependent<std::vector<std::uint8_t>, Use> valid_ = {};    ///< per source
};

}  // namespace wreload
