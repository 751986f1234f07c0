#pragma once
/// `AlsoNamed`, `SameAs`, `From`, `Accepts`: under which checkpoint names and dtypes a param's bytes may come.

#include <array>
#include <string_view>

#include "../core/dtype.hpp"
#include "policy.hpp"

namespace wreload {

/// Axis: spelling. Other spellings of the checkpoint leaf name. One tensor comes under one spelling: both in one update
/// is an error.
///
///     Param<weight_scale_inv, BlockScale<128, 128, fp32>, AlsoNamed<weight_scale>>
template <name_tag... Names>
struct AlsoNamed {
  using axis = wreload::axis::spelling;
  static constexpr std::array<std::string_view, sizeof...(Names)> names = {std::string_view(Names::name)...};
  static_assert(sizeof...(Names) > 0, "AlsoNamed: names no spelling; list at least one name");
};

/// Axis: twin. A second checkpoint leaf name for the same bytes: either or both may come; if the two differ, `finish`
/// refuses and names both. For names outside the layer there is `model::same_as`.
template <name_tag Name>
struct SameAs {
  using axis = wreload::axis::twin;
  static constexpr std::array<std::string_view, 1> names = {std::string_view(Name::name)};
};

/// Axis: source. A param stacked from `<leaf>` of these checkpoint modules, in row order, per expert:
/// `From<weight, gate_proj, up_proj>` reads `experts.N.gate_proj.weight` and `experts.N.up_proj.weight`.
template <name_tag Leaf, name_tag... Modules>
struct From {
  using axis = wreload::axis::source;
  static constexpr std::string_view leaf = Leaf::name;
  static constexpr std::array<std::string_view, sizeof...(Modules)> modules = {std::string_view(Modules::name)...};
  static_assert(sizeof...(Modules) > 0, "From: names no checkpoint module; list the modules in row order");
};

/// Axis: accepted. Further dtypes that may be loaded; they are widened exactly while landing, never rounded.
template <dtype_tag... Types>
struct Accepts {
  using axis = wreload::axis::accepted;
  static constexpr std::array<dtype, sizeof...(Types)> types = {Types::id...};
  static constexpr dtype_set set = (dtype_set{} | ... | dtype_set(Types::id));
  static_assert(sizeof...(Types) > 0, "Accepts: names no dtype; list at least one");
};

namespace detail {
struct no_names {
  static constexpr std::array<std::string_view, 0> names = {};
};
struct own_name {
  static constexpr std::string_view leaf = {};
  static constexpr std::array<std::string_view, 0> modules = {};
};
struct no_further_dtypes {
  static constexpr std::array<dtype, 0> types = {};
  static constexpr dtype_set set = {};
};
struct no_name {
  static constexpr std::string_view name = {};
};
struct unscaled {
  using name = no_name;
};
}  // namespace detail

}  // namespace wreload
