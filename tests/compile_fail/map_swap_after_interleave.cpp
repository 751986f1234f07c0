// The halves are whole until they are interleaved.
// expect: SwapHalves: needs whole halves; list it before GatedInterleave, ShuffleRows and Swizzle128x4
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::SwapHalves, wr::GatedInterleave>;
#else
using map = wr::Map<wr::GatedInterleave, wr::SwapHalves>;
#endif
static_assert(map::spec.has_halves());
