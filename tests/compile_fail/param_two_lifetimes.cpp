// Two policies on one axis: lifetime.
// expect: Param: two policies on one axis, lifetime; keep one of Retired, Kept and Static
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::Kept>;
#else
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::Kept, wr::Retired>;
#endif
static_assert(weight::spec.kept);
