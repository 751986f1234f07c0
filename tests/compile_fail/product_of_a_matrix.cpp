// Arithmetic is on scalars.
// expect: Product: a factor is not a scalar; name PerShard params
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::bf16>>,
                                wr::Param<n::input_scale, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Product<n::input_scale>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::bf16>>,
                                wr::Param<n::input_scale, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Product<n::input_scale, n::weight>>> {};
#endif
static_assert(layer::size > 0);
