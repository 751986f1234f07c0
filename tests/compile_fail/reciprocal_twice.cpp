// Two of them are none, but for the rounding.
// expect: Reciprocal: of a reciprocal; remove both
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using rule = wr::Reciprocal<n::input_scale>;
#else
using rule = wr::Reciprocal<wr::Reciprocal<n::input_scale>>;
#endif
static_assert(rule::spec.count == 1);
