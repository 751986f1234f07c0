// A grid of scales that no weight names would be loaded and never used.
// expect: BlockScale: unused scale; name it in the ScaledBy<...> of the weight it belongs to
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3>, wr::ScaledBy<wr::names::weight_scale>>;
#else
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3>>;
#endif

struct Layer : wr::ParamLayout<weight, wr::Param<wr::names::weight_scale, wr::BlockScale<128, 128, wr::fp32>>> {};
