// The halves are whole until rows are shuffled.
// expect: GatedInterleave: needs whole halves; list it before ShuffleRows and Swizzle128x4
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::GatedInterleave, wr::ShuffleRows<32>>;
#else
using map = wr::Map<wr::ShuffleRows<32>, wr::GatedInterleave>;
#endif
static_assert(map::spec.has_halves());
