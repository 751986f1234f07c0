// The shuffle has order 5: twice is neither once nor never.
// expect: ShuffleRows: stands twice in the Map, which does not undo it; keep one
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::ShuffleRows<32>>;
#else
using map = wr::Map<wr::ShuffleRows<32>, wr::ShuffleRows<32>>;
#endif
static_assert(!map::spec.swizzled);
