// A view that converts needs to know its scale.
// expect: StorageView: a view that converts needs its scale; add ScaledBy<scale> to the param
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>;
#ifdef GOOD
using weight = wr::Param<wr::names::weight, view, wr::ScaledBy<wr::names::weight_scale_inv>>;
#else
using weight = wr::Param<wr::names::weight, view>;
#endif
static_assert(weight::spec.converts());
