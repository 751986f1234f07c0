// Two policies on one axis: storage.
// expect: Param: two policies on one axis, storage; keep one StorageView, BlockScale or PerShard
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>>;
#else
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::BlockScale<128, 128, wr::fp32>>;
#endif
static_assert(!weight::spec.retired);
