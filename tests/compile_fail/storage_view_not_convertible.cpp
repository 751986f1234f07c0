// Only FP8 is converted at finish; what widens by itself widens at landing.
// expect: StorageView: only fp8_e4m3 and fp8_e5m2 are converted in place; use Accepts<...> to widen at landing
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::fp32>, wr::Accepts<wr::bf16>>;
#else
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16, wr::Over<wr::fp32>>>;
#endif
static_assert(weight::spec.runtime == wr::dtype::fp32);
