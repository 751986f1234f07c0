// Scalars are combined, not mapped.
// expect: AliasOrBind: does not name its map's source
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::fp4_e2m1x2>, wr::ScaledBy<n::weight_scale>>,
                                wr::Param<n::weight_scale, wr::BlockScale<1, 16, wr::fp8_e4m3>>,
                                wr::Param<n::weight_scale_2, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::weight_scale_interleaved, wr::AliasOrBind<n::weight_scale>, wr::Map<wr::Swizzle128x4>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::fp4_e2m1x2>, wr::ScaledBy<n::weight_scale>>,
                                wr::Param<n::weight_scale, wr::BlockScale<1, 16, wr::fp8_e4m3>>,
                                wr::Param<n::weight_scale_2, wr::PerShard<wr::fp32>>,
                                wr::Derived<n::weight_scale_interleaved, wr::AliasOrBind<n::weight_scale_2>, wr::Map<wr::Swizzle128x4>>> {};
#endif
static_assert(layer::size > 0);
