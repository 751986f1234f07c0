// Arithmetic has a result of its own.
// expect: AliasOrBind: only a map can share its source
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using alpha = wr::Derived<n::alpha, wr::Bind, wr::Reciprocal<n::input_scale>>;
#else
using alpha = wr::Derived<n::alpha, wr::AliasOrBind<n::input_scale>, wr::Reciprocal<n::input_scale>>;
#endif
static_assert(alpha::spec.product.inverted);
