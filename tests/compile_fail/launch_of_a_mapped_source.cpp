// The source has no storage of its own.
// expect: Launch: a source lives in the param that a map derives from it; name that one
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;
struct shadow {
  static constexpr wr::dtype type = wr::dtype::fp32;
  static wr::shape extents(std::span<const wr::shape> from) { return from[0]; }
  static wr::status launch(wr::stream_ref, std::span<const wr::runtime_tensor>, const wr::runtime_tensor&) { return {}; }
};
#ifdef GOOD
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::fp4_e2m1x2>, wr::ScaledBy<n::weight_scale>>,
                                wr::Param<n::weight_scale, wr::BlockScale<1, 16, wr::fp8_e4m3>>,
                                wr::Derived<n::weight_scale_interleaved, wr::AliasOrBind<n::weight_scale>, wr::Map<wr::Swizzle128x4>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Launch<shadow, n::weight_scale_interleaved>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::fp4_e2m1x2>, wr::ScaledBy<n::weight_scale>>,
                                wr::Param<n::weight_scale, wr::BlockScale<1, 16, wr::fp8_e4m3>>,
                                wr::Derived<n::weight_scale_interleaved, wr::AliasOrBind<n::weight_scale>, wr::Map<wr::Swizzle128x4>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Launch<shadow, n::weight_scale>>> {};
#endif
static_assert(layer::size > 0);
