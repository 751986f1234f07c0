#pragma once
/// `Derived`: a param that has no checkpoint tensor of its own.

#include "../policy/alias_or_bind.hpp"
#include "../policy/derived.hpp"
#include "../policy/lifetime.hpp"
#include "../policy/map.hpp"
#include "param_spec.hpp"

namespace wreload {

/// A param derived by one rule: `Map<...>` of the source that `AliasOrBind` names (nothing is computed, the source lands
/// here), arithmetic of `PerShard` params (`Max`, `Pick`, `Product`, `Reciprocal`, FP32), or `Launch<...>`.
///
///     Derived<weight_scale_interleaved, AliasOrBind<weight_scale>, Map<Swizzle128x4>>
///     Derived<input_scale_inv, Bind, Reciprocal<Max<input_scale, Across<shards>>>>
template <name_tag Name, class Place, class Rule>
struct Derived {
  static constexpr bool by_map = requires { typename Rule::axis; };
  static constexpr bool aliases = requires { typename Place::source; };

  static_assert(requires { Rule::spec; }, "Derived: no rule; give Map<...>, Product<...>, Reciprocal<...>, Max<...> or "
                                          "Launch<...>");
  static_assert(!by_map || aliases,
                "Derived: a map needs its source; write AliasOrBind<source> instead of Bind");
  static_assert(by_map || !aliases,
                "AliasOrBind: only a map can share its source's bytes; write Bind for arithmetic and Launch");

  using name = Name;

  /// The erased record; what refers to other params is filled in by the layout.
  static constexpr param_spec spec = [] {
    param_spec made{.name = Name::name, .stored = dtype::fp32, .runtime = dtype::fp32};
    if constexpr (by_map) {
      made.kind = param_kind::mapped;
      made.map = Rule::spec;
      if constexpr (aliases) made.derived_from = Place::source::name;
    } else if constexpr (requires { Rule::spec.launch; }) {
      made.kind = param_kind::launch;
      made.launch = Rule::spec;
      made.stored = made.runtime = Rule::spec.type;
    } else {
      made.kind = param_kind::product;
      made.product = Rule::spec;
    }
    return made;
  }();
};

}  // namespace wreload
