#pragma once
/// `AliasOrBind` and `Bind`: whose allocation a derived param uses; and the same rule as a free function.

#include <cstdint>

#include "../core/dtype.hpp"
#include "../core/shape.hpp"
#include "policy.hpp"

namespace wreload {

/// Axis: place. A param derived by a map lives in its source's allocation where the map adds no pad (both names, the
/// source's bytes in kernel order), and in one of its own at a fixed address otherwise. The source has no second copy
/// either way: it lands there. `Source` is the map's source.
///
///     Derived<weight_scale_interleaved, AliasOrBind<weight_scale>, Map<Swizzle128x4>>
template <name_tag Source>
struct AliasOrBind {
  using axis = wreload::axis::place;
  using source = Source;
};

/// Axis: place. The derived param has an allocation of its own (a reduction, a product, an engine's own transform).
struct Bind {
  using axis = wreload::axis::place;
};

/// Where a derived value lives.
enum class placement : std::uint8_t { alias, bind };

/// A tensor as the rule sees it.
struct placed_tensor {
  dtype type = dtype::none;
  shape extents = {};
};

/// The outcome of `alias_or_bind`: an alias shares the source's bytes, a bind needs its own.
struct placed {
  placement where = placement::bind;
  std::int64_t shared_bytes = 0;  ///< of the source that the derived value lives in
  std::int64_t saved_bytes = 0;   ///< that a bind would have needed
  std::int64_t bound_bytes = 0;   ///< to allocate
};

/// Whether `value` broadcasts to `to`: dims from the right are equal or 1; a scalar always does.
constexpr bool broadcasts(const shape& value, const shape& to) {
  if (value.rank() > to.rank()) return value.elements() == 1 && to.elements() >= 1;
  for (int dim = 1; dim <= value.rank(); ++dim) {
    const std::int64_t extent = value[value.rank() - dim];
    if (extent != 1 && extent != to[to.rank() - dim]) return false;
  }
  return true;
}

/// For transforms of an engine's own: a derived value takes over its source's allocation where the dtypes match and it
/// broadcasts to the source's shape (a scalar fills it), else it is bound. `force_bind` binds in any case. A value that
/// is aliased and lossy needs the source's whole group in every update that touches it: the source's bytes are gone.
constexpr placed alias_or_bind(const placed_tensor& source, const placed_tensor& derived_value, bool force_bind = false) {
  const std::int64_t own = derived_value.extents.elements() * bytes_of(derived_value.type);
  const bool fits = source.type == derived_value.type && broadcasts(derived_value.extents, source.extents) &&
                    derived_value.extents.elements() <= source.extents.elements();  // an empty source holds no value
  if (!fits || force_bind) return {placement::bind, 0, 0, own};
  return {placement::alias, source.extents.elements() * bytes_of(source.type), own, 0};
}

static_assert(alias_or_bind({dtype::fp32, {4}}, {dtype::fp32, {}}).where == placement::alias);
static_assert(alias_or_bind({dtype::fp32, {4}}, {dtype::bf16, {4}}).where == placement::bind);
static_assert(alias_or_bind({dtype::fp32, {4}}, {dtype::fp32, {8}}).bound_bytes == 32);

}  // namespace wreload
