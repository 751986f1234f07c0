// A scale's grids lie in its weight's row order.
// expect: From: a weight and its scale list different modules; give both the same ones, in row order
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using modules = wr::From<n::weight_scale, n::up_proj, n::gate_proj>;
#else
using modules = wr::From<n::weight_scale, n::gate_proj, n::up_proj>;
#endif
struct layer : wr::ParamLayout<wr::Param<n::w13_weight, wr::StorageView<wr::fp4_e2m1x2>, wr::ScaledBy<n::w13_weight_scale>,
                                         wr::From<n::weight, n::up_proj, n::gate_proj>>,
                               wr::Param<n::w13_weight_scale, wr::BlockScale<1, 16, wr::fp8_e4m3>, modules>> {};
static_assert(layer::size == 2);
