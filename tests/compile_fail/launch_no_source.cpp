// Without a source it would never run.
// expect: Launch: names no source; list the params it reads
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
using rule = wr::Launch<shadow, n::weight>;
#else
using rule = wr::Launch<shadow>;
#endif
static_assert(rule::spec.type == wr::dtype::fp32);
