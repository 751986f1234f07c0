// A maximum needs an axis.
// expect: Max: reduces over nothing; write Across<shards> or Across<experts, shards>
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using rule = wr::Max<n::input_scale, wr::Across<wr::shards>>;
#else
using rule = wr::Max<n::input_scale, wr::Across<>>;
#endif
static_assert(rule::spec.count == 1);
