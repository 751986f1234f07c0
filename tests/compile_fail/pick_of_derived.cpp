// A derived param has no modules.
// expect: Max: reduces a derived param; name the PerShard param
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
struct layer : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Reciprocal<n::input_scale>>,
                                wr::Derived<n::g1_alphas, wr::Bind, wr::Pick<n::input_scale, n::gate_proj>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Reciprocal<n::input_scale>>,
                                wr::Derived<n::g1_alphas, wr::Bind, wr::Pick<n::alpha, n::gate_proj>>> {};
#endif
static_assert(layer::size > 0);
