// Two params that wait for each other.
// expect: Derived: a cycle of derived params; make one of them a Param
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
struct layer : wr::ParamLayout<wr::Derived<n::alpha, wr::Bind, wr::Product<n::g1_alphas, n::input_scale>>,
                                wr::Derived<n::g1_alphas, wr::Bind, wr::Reciprocal<n::input_scale>>,
                                wr::Param<n::input_scale, wr::PerShard<wr::fp32>>> {};
#else
struct layer : wr::ParamLayout<wr::Derived<n::alpha, wr::Bind, wr::Product<n::g1_alphas, n::input_scale>>,
                                wr::Derived<n::g1_alphas, wr::Bind, wr::Reciprocal<n::alpha>>,
                                wr::Param<n::input_scale, wr::PerShard<wr::fp32>>> {};
#endif
static_assert(layer::size > 0);
