// What stands behind the name is a policy, not a dtype.
// expect: constraints not satisfied
// expect: wreload::bf16
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>>;
#else
using weight = wr::Param<wr::names::weight, wr::bf16>;
#endif
static_assert(weight::spec.runtime == wr::dtype::bf16);
