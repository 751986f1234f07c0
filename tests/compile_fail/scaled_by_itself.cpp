// A weight cannot be its own scale.
// expect: ScaledBy: the named param is not a scale; give it a BlockScale<...> storage
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

struct Layer : wr::ParamLayout<
    wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>,
#ifdef GOOD
              wr::ScaledBy<wr::names::weight_scale>>,
    wr::Param<wr::names::weight_scale, wr::BlockScale<128, 128, wr::fp32>, wr::Retired>> {};
#else
              wr::ScaledBy<wr::names::weight>>> {};
#endif
