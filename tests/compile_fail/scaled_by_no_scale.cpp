// ScaledBy names a param that is not a grid of scales.
// expect: ScaledBy: the named param is not a scale; give it a BlockScale<...> storage
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using scales = wr::BlockScale<128, 128, wr::fp32>;
#else
using scales = wr::StorageView<wr::fp32>;
#endif

struct Layer : wr::ParamLayout<
    wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>, wr::ScaledBy<wr::names::weight_scale>>,
    wr::Param<wr::names::weight_scale, scales>> {};
