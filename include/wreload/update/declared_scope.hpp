#pragma once
/// `declared_scope`: which tensors of the model an open update has promised to send.

#include <cstdint>
#include <string_view>
#include <vector>

#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "registry.hpp"
#include "scope.hpp"

namespace wreload {

/// An `update_scope`, looked up: a tensor is declared under any of its spellings.
template <class Use = on_use>
class basic_declared_scope {
 public:
  explicit basic_declared_scope(const basic_registry<Use>& records) : records_(records) {}

  /// Sizes the table; the registry is indexed by now.
  void seal() { declared_.assign(records_.sources.size(), true); }

  /// Refuses a declared name that is neither of the model nor `elsewhere(name)`, and a partial scope of nothing.
  template <class Elsewhere>
  status open(const update_scope& scope, Elsewhere&& elsewhere) {
    complete_ = scope.is_complete;
    if (!scope.is_complete || !all_declared_) declared_.assign(records_.sources.size(), scope.is_complete);
    all_declared_ = scope.is_complete;
    if (scope.is_complete) return {};
    bool any = false;
    const auto declare = [&](name_record name) {
      at(declared_, name.source) = 1;
      any = true;
    };
    for (const std::string_view name : scope.names) {
      const std::int32_t id = records_.names.find(name);
      if (id == no_index && !elsewhere(name))
        return refuse(error_code::unknown_name, name, "a checkpoint tensor of the model", "a declared name it lacks");
      any = true;
      if (id != no_index) declare(records_.names[id]);
    }
    for (const name_record name : records_.names) {
      const std::string_view text = records_.spelling(name);
      if ((!scope.prefix.empty() && text.starts_with(scope.prefix)) ||
          (scope.predicate != nullptr && scope.predicate(text, scope.context)))
        declare(name);
    }
    if (any) return {};
    return refuse(error_code::bad_argument, scope.prefix, "a partial scope that declares a tensor of the model",
                  "none");
  }

  bool is_complete() const { return complete_; }
  bool has(std::int32_t source) const { return at(declared_, source) != 0; }
  /// Whether a landing's bytes were declared, under any of their names.
  bool has_landing(std::int32_t l) const {
    bool found = false;
    records_.for_each_twin(l, [&](std::int32_t each) { found |= has(at(records_.landings, each).source); });
    return found;
  }

  static status not_declared(std::string_view name) {
    return refuse(error_code::out_of_scope, name, "a tensor that this partial update declared", "another one");
  }

 private:
  const basic_registry<Use>& records_;
  bool complete_ = true;
  bool all_declared_ = true;
  dependent<std::vector<std::uint8_t>, Use> declared_ = {};  ///< per source
};

}  // namespace wreload
