// Three factors a product.
// expect: Product: takes one to three factors; split it into two derived params
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using rule = wr::Product<n::g1_alphas, n::g2_alphas, n::alpha>;
#else
using rule = wr::Product<n::g1_alphas, n::g2_alphas, n::alpha, n::input_scale>;
#endif
static_assert(rule::spec.count == 3);
