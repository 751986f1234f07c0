// A scale is not scaled itself.
// expect: ScaledBy: a scale cannot be scaled itself; remove ScaledBy from the BlockScale param
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using scale = wr::Param<wr::names::weight_scale, wr::BlockScale<128, 128, wr::fp32>>;
#else
using scale = wr::Param<wr::names::weight_scale, wr::BlockScale<128, 128, wr::fp32>, wr::ScaledBy<wr::names::weight_scale_inv>>;
#endif
static_assert(scale::spec.is_block_scale);
