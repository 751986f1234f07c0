#pragma once
/// `Param`: a name and its policies.

#include <cstdint>
#include <span>
#include <string_view>

#include "../core/dtype.hpp"
#include "../numerics/widen.hpp"
#include "../policy/block_scale.hpp"
#include "../policy/map.hpp"
#include "../policy/lifetime.hpp"
#include "../policy/names.hpp"
#include "../policy/per_shard.hpp"
#include "../policy/policy.hpp"
#include "../policy/storage_view.hpp"
#include "param_spec.hpp"

namespace wreload {

/// A runtime tensor of a layer: its name (a tag) and policies, at most one per axis.
///
///     using w = Param<weight, StorageView<fp8_e4m3, Over<bf16>>, ScaledBy<weight_scale_inv>>;
///     static_assert(w::storage::runtime == dtype::bf16);
template <name_tag Name, policy... Policies>
struct Param {
  static_assert(detail::policies_on<axis::storage, Policies...> <= 1,
                "Param: two policies on one axis, storage; keep one StorageView, BlockScale or PerShard");
  static_assert(detail::policies_on<axis::scale, Policies...> <= 1,
                "Param: two policies on one axis, scale; keep one ScaledBy");
  static_assert(detail::policies_on<axis::lifetime, Policies...> <= 1,
                "Param: two policies on one axis, lifetime; keep one of Retired, Kept and Static");
  static_assert(detail::policies_on<axis::spelling, Policies...> <= 1,
                "Param: two policies on one axis, spelling; list all names in one AlsoNamed");
  static_assert(detail::policies_on<axis::twin, Policies...> <= 1,
                "Param: two policies on one axis, twin; keep one SameAs");
  static_assert(detail::policies_on<axis::source, Policies...> <= 1,
                "Param: two policies on one axis, source; list all modules in one From");
  static_assert(detail::policies_on<axis::accepted, Policies...> <= 1,
                "Param: two policies on one axis, accepted; list all dtypes in one Accepts");
  static_assert(detail::policies_on<axis::map, Policies...> <= 1,
                "Param: two policies on one axis, map; list all steps in one Map");
  static_assert(detail::policies_on<axis::place, Policies...> == 0,
                "AliasOrBind: says where a derived param lives; write it in Derived, not in Param");
  static_assert(detail::policies_on<axis::storage, Policies...> == 1,
                "Param: no storage policy; add StorageView<...>, BlockScale<...> or PerShard<...>");

  using name = Name;
  using storage = policy_on<axis::storage, void, Policies...>;
  using scale = policy_on<axis::scale, detail::unscaled, Policies...>;
  using lifetime = policy_on<axis::lifetime, detail::usual_lifetime, Policies...>;
  using spelling = policy_on<axis::spelling, detail::no_names, Policies...>;
  using twin = policy_on<axis::twin, detail::no_names, Policies...>;
  using source = policy_on<axis::source, detail::own_name, Policies...>;
  using accepted = policy_on<axis::accepted, detail::no_further_dtypes, Policies...>;
  using map = policy_on<axis::map, detail::no_map, Policies...>;

  static constexpr bool is_scaled = detail::policies_on<axis::scale, Policies...> == 1;
  static constexpr std::string_view leaf = source::leaf.empty() ? std::string_view(Name::name) : source::leaf;

  static_assert(!storage::converts || is_scaled,
                "StorageView: a view that converts needs its scale; add ScaledBy<scale> to the param");
  static_assert(!storage::is_block_scale || !is_scaled,
                "ScaledBy: a scale cannot be scaled itself; remove ScaledBy from the BlockScale param");
  static_assert(!lifetime::fixed || (accepted::types.empty() && spelling::names.empty() && twin::names.empty() &&
                                     source::modules.empty() && !is_scaled),
                "Static: the param has no checkpoint source; remove Accepts, AlsoNamed, SameAs, From and ScaledBy");

  static_assert(!storage::converts || map::spec == map_spec{},
                "Map: a view that converts in place keeps checkpoint order; remove Map or Over<...>");

  static constexpr bool accepts_widen() {
    for (const dtype type : accepted::types)
      if (!widens(type, storage::runtime)) return false;
    return true;
  }
  static_assert(accepts_widen(), "Accepts: a dtype does not widen exactly to the storage; remove it or widen the storage");

  /// The erased record; what refers to other params is filled in by the layout.
  static constexpr param_spec spec = [] {
    param_spec made{.name = Name::name,
                    .leaf = leaf,
                    .modules = source::modules,
                    .spellings = spelling::names,
                    .twins = twin::names,
                    .stored = storage::stored,
                    .runtime = storage::runtime,
                    .accepted = dtype_set(storage::stored) | dtype_set(storage::runtime) | accepted::set,
                    .block_rows = storage::block_rows,
                    .block_cols = storage::block_cols,
                    .scale_name = scale::name::name,
                    .is_block_scale = storage::is_block_scale,
                    .map = map::spec,
                    .retired = lifetime::retired,
                    .kept = lifetime::kept,
                    .fixed = lifetime::fixed};
    if (storage::stored == dtype::fp4_e2m1x2) made.accepted |= dtype::u8;  // as files spell packed fp4
    if (storage::is_block_scale) made.kind = param_kind::block_scale;
    if constexpr (requires { storage::of_all_experts; }) {
      made.kind = param_kind::per_shard;
      made.of_all_experts = storage::of_all_experts;
      made.expect_equal = storage::expect_equal;
    }
    return made;
  }();
};

}  // namespace wreload
