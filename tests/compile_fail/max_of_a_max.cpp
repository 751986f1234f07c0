// One maximum over both axes.
// expect: Max: reduces one PerShard param (or its Reciprocal); name it directly
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using rule = wr::Max<n::input_scale, wr::Across<wr::experts, wr::shards>>;
#else
using rule = wr::Max<wr::Max<n::input_scale, wr::Across<wr::shards>>, wr::Across<wr::experts>>;
#endif
static_assert(rule::spec.count == 1);
