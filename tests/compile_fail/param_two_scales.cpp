// Two policies on one axis: scale.
// expect: Param: two policies on one axis, scale; keep one ScaledBy
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>;
#ifdef GOOD
using weight = wr::Param<wr::names::weight, view, wr::ScaledBy<wr::names::weight_scale>>;
#else
using weight = wr::Param<wr::names::weight, view, wr::ScaledBy<wr::names::weight_scale>, wr::ScaledBy<wr::names::weight_scale_inv>>;
#endif
static_assert(weight::spec.converts());
