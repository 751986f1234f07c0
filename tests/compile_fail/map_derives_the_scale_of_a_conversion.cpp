// The same for scales that land in a derived param.
// expect: Map: the scale of a view that converts keeps checkpoint order; remove the scale's Map or Over<...>
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wr::names;

#ifdef GOOD
using order = wr::Map<wr::PadToMultiple<4, 1>>;
#else
using order = wr::Map<wr::MnMajor>;
#endif
struct layout : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>, wr::ScaledBy<n::weight_scale_inv>>,
                                wr::Param<n::weight_scale_inv, wr::BlockScale<128, 128, wr::fp32>>,
                                wr::Derived<n::weight_scale_inv_mn_major, wr::AliasOrBind<n::weight_scale_inv>, order>> {};
static_assert(layout::size == 3);
