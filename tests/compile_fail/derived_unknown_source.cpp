// A factor that the layout lacks.
// expect: Derived: unknown source; add a Param of that name
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
struct layer : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::input_scale_inv, wr::Bind, wr::Reciprocal<n::input_scale>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::input_scale, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::input_scale_inv, wr::Bind, wr::Reciprocal<n::w2_input_scale>>> {};
#endif
static_assert(layer::size > 0);
