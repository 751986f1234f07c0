// After the swizzle there are no whole rows to shuffle.
// expect: ShuffleRows: needs whole rows; list Swizzle128x4 last in the Map
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::ShuffleRows<32>, wr::Swizzle128x4>;
#else
using map = wr::Map<wr::Swizzle128x4, wr::ShuffleRows<32>>;
#endif
static_assert(map::spec.swizzled);
