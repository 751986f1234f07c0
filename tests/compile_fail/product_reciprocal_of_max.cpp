// 1 / max is a value of its own.
// expect: Product: a factor is the reciprocal of a maximum; derive that one first and name it
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using rule = wr::Product<n::input_scale_inv, n::alpha>;
#else
using rule = wr::Product<wr::Reciprocal<wr::Max<n::input_scale, wr::Across<wr::shards>>>, n::alpha>;
#endif
static_assert(rule::spec.count == 2);
