// ScaledBy names a param that the layout does not have.
// expect: ScaledBy: unknown source; add a Param of that name with BlockScale<...>, or correct the name
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using scale = wr::names::weight_scale_inv;
#else
using scale = wr::names::weight_scale;
#endif

struct Layer : wr::ParamLayout<
    wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>, wr::ScaledBy<scale>>,
    wr::Param<wr::names::weight_scale_inv, wr::BlockScale<128, 128, wr::fp32>, wr::Retired>> {};
