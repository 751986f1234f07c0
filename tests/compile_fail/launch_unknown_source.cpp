// A source that the layout lacks.
// expect: Derived: unknown source; add a Param of that name
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
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::bf16>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Launch<shadow, n::weight>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::bf16>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Launch<shadow, n::weight_scale>>> {};
#endif
static_assert(layer::size > 0);
