#pragma once
/// `ParamLayout`: the params of one kind of layer, checked where it is composed.

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "../numerics/visit.hpp"
#include "derived.hpp"
#include "param.hpp"

namespace wreload {

namespace detail {

constexpr bool contains(std::span<const std::string_view> list, std::string_view name) {
  for (const std::string_view each : list)
    if (each == name) return true;
  return false;
}

constexpr bool same_names(std::span<const std::string_view> a, std::span<const std::string_view> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return false;
  return true;
}

/// Whether the param may come under this leaf name.
constexpr bool reads(const param_spec& spec, std::string_view leaf) {
  return !spec.fixed && !spec.leaf.empty() && (spec.leaf == leaf || contains(spec.spellings, leaf) || contains(spec.twins, leaf));
}

/// Whether a param lists one checkpoint name twice.
constexpr bool names_itself_twice(const param_spec& spec) {
  bool twice = contains(spec.spellings, spec.leaf) || contains(spec.twins, spec.leaf);
  for (std::size_t i = 0; i < spec.spellings.size(); ++i) {
    twice |= contains(spec.twins, spec.spellings[i]);
    for (std::size_t j = 0; j < i; ++j) twice |= spec.spellings[j] == spec.spellings[i];
  }
  return twice;
}
constexpr bool none_names_itself_twice(std::span<const param_spec> specs) {
  for (const param_spec& spec : specs)
    if (names_itself_twice(spec)) return false;
  return true;
}

/// Whether one checkpoint name could land in both params.
constexpr bool sources_collide(const param_spec& a, const param_spec& b) {
  bool same_module = a.modules.empty() || b.modules.empty();
  for (const std::string_view module : a.modules) same_module |= contains(b.modules, module);
  if (!same_module || a.fixed || a.leaf.empty()) return false;
  bool collide = reads(b, a.leaf);
  for (const std::string_view name : a.spellings) collide |= reads(b, name);
  for (const std::string_view name : a.twins) collide |= reads(b, name);
  return collide;
}

/// Calls `visit(name)` for the params that a derived one reads.
template <class Visit>
constexpr void for_each_source(const param_spec& spec, Visit visit) {
  if (spec.kind == param_kind::mapped) visit(spec.derived_from);
  for (std::size_t i = 0; i < spec.product.count; ++i) visit(spec.product.factors[i].param);
  for (const std::string_view name : spec.launch.sources) visit(name);
}

/// No two params for which `bad(a, b)` holds.
template <class Bad>
constexpr bool no_pair(std::span<const param_spec> specs, Bad bad) {
  for (std::size_t a = 0; a < specs.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (bad(specs[a], specs[b])) return false;
  return true;
}
constexpr bool same_name(const param_spec& a, const param_spec& b) { return a.name == b.name; }
constexpr bool same_scale(const param_spec& a, const param_spec& b) {
  return !a.scale_name.empty() && a.scale_name == b.scale_name;
}

/// Index of the param of that name, or -1.
constexpr int index_of(std::span<const param_spec> specs, std::string_view name) {
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (specs[i].name == name) return static_cast<int>(i);
  return -1;
}
constexpr bool scales_are_known(std::span<const param_spec> specs) {
  for (const param_spec& spec : specs)
    if (!spec.scale_name.empty() && spec.scaled_by < 0) return false;
  return true;
}
constexpr bool scales_are_scales(std::span<const param_spec> specs) {
  for (const param_spec& spec : specs)
    if (spec.scaled_by >= 0 && !specs[static_cast<std::size_t>(spec.scaled_by)].is_block_scale) return false;
  return true;
}
/// What converts a weight finds its scales in checkpoint order.
constexpr bool scales_of_conversions_keep_order(std::span<const param_spec> specs) {
  for (const param_spec& weight : specs) {
    if (!weight.converts() || weight.scaled_by < 0) continue;
    const param_spec& scale = specs[static_cast<std::size_t>(weight.scaled_by)];
    const param_spec& home = scale.lives_in < 0 ? scale : specs[static_cast<std::size_t>(scale.lives_in)];
    if (!home.map.keeps_order()) return false;
  }
  return true;
}
/// A scale's rows follow its weight's: another order of modules would be ignored.
constexpr bool scales_list_the_same_modules(std::span<const param_spec> specs) {
  for (const param_spec& weight : specs)
    if (weight.scaled_by >= 0 &&
        !same_names(weight.modules, specs[static_cast<std::size_t>(weight.scaled_by)].modules))
      return false;
  return true;
}
constexpr bool derived_sources_are_known(std::span<const param_spec> specs) {
  bool known = true;
  for (const param_spec& spec : specs)
    for_each_source(spec, [&](std::string_view name) { known &= index_of(specs, name) >= 0; });
  return known;
}
/// A computed param is computed when a source came: one that reads only Static params never would be.
constexpr bool computed_read_checkpoints(std::span<const param_spec> specs) {
  for (const param_spec& spec : specs) {
    bool comes = !spec.is_computed();
    for_each_source(spec, [&](std::string_view name) {
      const int from = index_of(specs, name);
      comes |= from >= 0 && !specs[static_cast<std::size_t>(from)].fixed;
    });
    if (!comes) return false;
  }
  return true;
}
/// A map moves the bytes of a param that comes from a checkpoint, once.
constexpr bool maps_move_sources(std::span<const param_spec> specs) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kind != param_kind::mapped) continue;
    const int from = index_of(specs, specs[i].derived_from);
    if (from < 0) continue;
    const param_spec& source = specs[static_cast<std::size_t>(from)];
    const bool moves = source.kind == param_kind::matrix || source.kind == param_kind::block_scale;
    if (!moves || source.converts() || !(source.map == map_spec{}) || source.lives_in != static_cast<int>(i))
      return false;
  }
  return true;
}
/// Arithmetic reads scalars (PerShard, or derived by arithmetic).
constexpr bool products_read_scalars(std::span<const param_spec> specs) {
  for (const param_spec& spec : specs)
    for (std::size_t i = 0; i < spec.product.count; ++i) {
      const int from = index_of(specs, spec.product.factors[i].param);
      if (from < 0) continue;
      const param_kind kind = specs[static_cast<std::size_t>(from)].kind;
      if (kind != param_kind::per_shard && kind != param_kind::product) return false;
    }
  return true;
}
/// Maxima and picks are of the values that checkpoint modules bring.
constexpr bool reductions_read_shards(std::span<const param_spec> specs) {
  for (const param_spec& spec : specs)
    for (std::size_t i = 0; i < spec.product.count; ++i) {
      const factor_spec& factor = spec.product.factors[i];
      const int from = index_of(specs, factor.param);
      if (from >= 0 && (factor.across != 0 || !factor.module.empty()) &&
          specs[static_cast<std::size_t>(from)].kind == param_kind::product)
        return false;
    }
  return true;
}
/// A launcher reads memory: not a param that lives in another one, in another order.
constexpr bool launches_read_storage(std::span<const param_spec> specs) {
  for (const param_spec& spec : specs)
    for (const std::string_view name : spec.launch.sources)
      if (const int from = index_of(specs, name); from >= 0 && specs[static_cast<std::size_t>(from)].lives_in >= 0)
        return false;
  return true;
}
/// Levels of the derived params: 0 reads no derived one; -1 where they read each other in a circle.
template <std::size_t Size>
constexpr std::array<int, Size> levels_of(const std::array<param_spec, Size>& specs) {
  std::array<int, Size> levels = {};
  for (std::size_t round = 0; round <= Size; ++round) {
    bool changed = false;
    for (std::size_t i = 0; i < Size; ++i)
      for_each_source(specs[i], [&](std::string_view name) {
        const int from = index_of(specs, name);
        if (from < 0 || !specs[static_cast<std::size_t>(from)].is_computed()) return;
        const int needed = levels[static_cast<std::size_t>(from)] + 1;
        changed |= levels[i] < needed;
        levels[i] = levels[i] < needed ? needed : levels[i];
      });
    if (!changed) return levels;
  }
  levels.fill(-1);
  return levels;
}

constexpr bool scales_dequantise(std::span<const param_spec> specs) {
  for (const param_spec& spec : specs)
    if (spec.converts() && spec.scaled_by >= 0 &&
        !dequantises(spec.stored, spec.runtime, specs[static_cast<std::size_t>(spec.scaled_by)].runtime))
      return false;
  return true;
}
constexpr bool scales_are_used(std::span<const param_spec> specs) {
  for (const param_spec& scale : specs) {
    bool used = !scale.is_block_scale;
    for (const param_spec& weight : specs) used |= weight.scale_name == scale.name;
    if (!used) return false;
  }
  return true;
}

}  // namespace detail

/// The params of a layer. Derive a struct from it: an alias checks nothing until it is used.
///
///     struct Fp8DequantLinear : ParamLayout<
///         Param<weight, StorageView<fp8_e4m3, Over<bf16>>, ScaledBy<weight_scale_inv>>,
///         Param<weight_scale_inv, BlockScale<128, 128, fp32>, Retired>> {};
template <class... Params>
struct ParamLayout {
  static_assert(sizeof...(Params) > 0, "ParamLayout: no params; list at least one Param<...>");

  static constexpr std::size_t size = sizeof...(Params);

  /// The params in order, types erased.
  static constexpr std::array<param_spec, size> specs = [] {
    std::array<param_spec, size> all = {Params::spec...};
    for (param_spec& spec : all)
      if (!spec.scale_name.empty()) spec.scaled_by = detail::index_of(all, spec.scale_name);
    for (std::size_t i = 0; i < size; ++i)
      if (const int from = detail::index_of(all, all[i].derived_from); from >= 0 && all[i].kind == param_kind::mapped)
        all[static_cast<std::size_t>(from)].lives_in = static_cast<int>(i);
    const std::array<int, size> levels = detail::levels_of(all);
    for (std::size_t i = 0; i < size; ++i) all[i].level = levels[i];
    return all;
  }();

  static_assert(detail::no_pair(specs, detail::same_name),
                "ParamLayout: duplicate names; give every Param its own name");
  static_assert(detail::none_names_itself_twice(specs),
                "ParamLayout: duplicate names; a param lists one checkpoint name twice (AlsoNamed, SameAs): remove it");
  static_assert(detail::no_pair(specs, detail::sources_collide),
                "ParamLayout: duplicate names; two params read the same checkpoint name (AlsoNamed, SameAs, From): "
                "rename or remove one");
  static_assert(detail::scales_are_known(specs),
                "ScaledBy: unknown source; add a Param of that name with BlockScale<...>, or correct the name");
  static_assert(detail::scales_are_scales(specs),
                "ScaledBy: the named param is not a scale; give it a BlockScale<...> storage");
  static_assert(detail::scales_dequantise(specs),
                "ScaledBy: the scale's dtype does not dequantise the view; use BlockScale<..., fp32>, bf16 or fp8_ue8m0");
  static_assert(detail::scales_of_conversions_keep_order(specs),
                "Map: the scale of a view that converts keeps checkpoint order; remove the scale's Map or Over<...>");
  static_assert(detail::scales_list_the_same_modules(specs),
                "From: a weight and its scale list different modules; give both the same ones, in row order");
  static_assert(detail::scales_are_used(specs),
                "BlockScale: unused scale; name it in the ScaledBy<...> of the weight it belongs to");
  static_assert(detail::derived_sources_are_known(specs),
                "Derived: unknown source; add a Param of that name, or correct the name");
  static_assert(detail::computed_read_checkpoints(specs),
                "Derived: reads only Static params and would never be computed; name a Param that a checkpoint brings");
  static_assert(specs[0].level >= 0, "Derived: a cycle of derived params; make one of them a Param");
  static_assert(detail::maps_move_sources(specs),
                "AliasOrBind: does not name its map's source; name one matrix or BlockScale param without a Map of its "
                "own, and in one Derived only");
  static_assert(detail::products_read_scalars(specs),
                "Product: a factor is not a scalar; name PerShard params or params derived from them");
  static_assert(detail::reductions_read_shards(specs),
                "Max: reduces a derived param; name the PerShard param that has one value a module (Pick, too)");
  static_assert(detail::launches_read_storage(specs),
                "Launch: a source lives in the param that a map derives from it; name that one");
  static_assert(detail::no_pair(specs, detail::same_scale),
                "ScaledBy: one scale for two weights; give each weight a BlockScale param of its own");
};

/// A struct that derives from a `ParamLayout` (or has the same `specs`).
template <class Layout>
concept param_layout = requires { std::span<const param_spec>(Layout::specs); };

}  // namespace wreload
