// Rows are converted where they are.
// expect: Map: a view that converts in place keeps checkpoint order; remove Map or Over<...>
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using weight = wr::Param<n::weight, wr::StorageView<wr::fp8_e4m3>, wr::Map<wr::ShuffleRows<32>>>;
#else
using weight = wr::Param<n::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>, wr::ScaledBy<n::weight_scale>, wr::Map<wr::ShuffleRows<32>>>;
#endif
static_assert(!weight::spec.retired);
