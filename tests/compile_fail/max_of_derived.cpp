// A derived param has no shards.
// expect: Max: reduces a derived param; name the PerShard param
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
struct layer : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Reciprocal<n::input_scale>>,
                                wr::Derived<n::g1_alphas, wr::Bind, wr::Product<n::alpha>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Reciprocal<n::input_scale>>,
                                wr::Derived<n::g1_alphas, wr::Bind, wr::Max<n::alpha, wr::Across<wr::experts>>>> {};
#endif
static_assert(layer::size > 0);
