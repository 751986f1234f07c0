// A place alone computes nothing.
// expect: Derived: no rule; give Map<...>, Product<...>
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using alpha = wr::Derived<n::alpha, wr::Bind, wr::Reciprocal<n::input_scale>>;
#else
using alpha = wr::Derived<n::alpha, wr::Bind, n::input_scale>;
#endif
static_assert(alpha::spec.product.inverted);
