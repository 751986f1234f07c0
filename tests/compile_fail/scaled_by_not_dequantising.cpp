// An e4m3 scale is of NVFP4, which runs as it is.
// expect: ScaledBy: the scale's dtype does not dequantise the view; use BlockScale<..., fp32>
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>, wr::ScaledBy<n::weight_scale>>,
                                wr::Param<n::weight_scale, wr::BlockScale<1, 16, wr::fp32>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>, wr::ScaledBy<n::weight_scale>>,
                                wr::Param<n::weight_scale, wr::BlockScale<1, 16, wr::fp8_e4m3>>> {};
#endif
static_assert(layer::size > 0);
