// Two policies on one axis: map.
// expect: Param: two policies on one axis, map; list all steps in one Map
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using weight = wr::Param<n::weight, wr::StorageView<wr::fp4_e2m1x2>, wr::Map<wr::PadToMultiple<32, 32>, wr::ShuffleRows<32>>>;
#else
using weight = wr::Param<n::weight, wr::StorageView<wr::fp4_e2m1x2>, wr::Map<wr::PadToMultiple<32, 32>>, wr::Map<wr::ShuffleRows<32>>>;
#endif
static_assert(weight::spec.map.pad_rows == 32);
