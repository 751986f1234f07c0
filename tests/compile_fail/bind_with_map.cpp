// A map moves the bytes of a source.
// expect: Derived: a map needs its source; write AliasOrBind<source> instead of Bind
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using order = wr::Derived<n::weight_scale_interleaved, wr::AliasOrBind<n::weight_scale>, wr::Map<wr::Swizzle128x4>>;
#else
using order = wr::Derived<n::weight_scale_interleaved, wr::Bind, wr::Map<wr::Swizzle128x4>>;
#endif
static_assert(order::spec.map.swizzled);
