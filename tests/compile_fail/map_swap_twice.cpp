// Swapped twice is not swapped.
// expect: SwapHalves: stands twice in the Map, which undoes it; keep one or none
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::SwapHalves>;
#else
using map = wr::Map<wr::SwapHalves, wr::SwapHalves>;
#endif
static_assert(map::spec.has_halves());
