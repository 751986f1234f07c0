// Maxima are of what a checkpoint brings.
// expect: Max: reduces one PerShard param (or its Reciprocal); name it directly
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using rule = wr::Max<n::input_scale, wr::Across<wr::shards>>;
#else
using rule = wr::Max<wr::Product<n::input_scale, n::alpha>, wr::Across<wr::shards>>;
#endif
static_assert(rule::spec.count > 0);
