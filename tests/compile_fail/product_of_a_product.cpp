// Factors stand in one list, so that their order is seen.
// expect: Product: a factor is itself a product; list its factors here
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using rule = wr::Product<n::g1_alphas, n::g2_alphas, n::alpha>;
#else
using rule = wr::Product<wr::Product<n::g1_alphas, n::g2_alphas>, n::alpha>;
#endif
static_assert(rule::spec.count > 0);
