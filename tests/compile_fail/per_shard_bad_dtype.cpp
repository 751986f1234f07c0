// Arithmetic is fp32.
// expect: PerShard: scalars are combined in fp32; use PerShard<fp32>
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using scales = wr::PerShard<wr::fp32>;
#else
using scales = wr::PerShard<wr::bf16>;
#endif
static_assert(!scales::expect_equal);
