// Rows are interleaved once.
// expect: GatedInterleave: stands twice in the Map; keep one
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::GatedInterleave>;
#else
using map = wr::Map<wr::GatedInterleave, wr::GatedInterleave>;
#endif
static_assert(map::spec.has_halves());
