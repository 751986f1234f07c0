// A param from a checkpoint has bytes of its own.
// expect: AliasOrBind: says where a derived param lives; write it in Derived
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using scale = wr::Param<n::weight_scale, wr::BlockScale<1, 16, wr::fp8_e4m3>>;
#else
using scale = wr::Param<n::weight_scale, wr::BlockScale<1, 16, wr::fp8_e4m3>, wr::AliasOrBind<n::weight>>;
#endif
static_assert(scale::spec.is_block_scale);
