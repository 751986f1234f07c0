// What is accepted loses nothing in storage.
// expect: Accepts: a dtype does not widen exactly to the storage; remove it or widen the storage
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::fp32>, wr::Accepts<wr::bf16>>;
#else
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::Accepts<wr::fp32>>;
#endif
static_assert(weight::is_scaled == false);
