// What dequantises a weight reads its scales in checkpoint order.
// expect: Map: the scale of a view that converts keeps checkpoint order; remove the scale's Map or Over<...>
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wr::names;

#ifdef GOOD
using view = wr::StorageView<wr::fp8_e4m3>;
#else
using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>;
#endif
struct layout : wr::ParamLayout<wr::Param<n::weight, view, wr::ScaledBy<n::weight_scale_inv>>,
                                wr::Param<n::weight_scale_inv, wr::BlockScale<128, 128, wr::fp32>, wr::Map<wr::MnMajor>>> {};
static_assert(layout::size == 2);
