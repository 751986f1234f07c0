// A param says what its bytes are.
// expect: Param: no storage policy; add StorageView<...>
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::Kept>;
#else
using weight = wr::Param<wr::names::weight, wr::Kept>;
#endif
static_assert(weight::spec.kept);
