// Checkpoint order is what a param has without a Map.
// expect: Map: lists no step; add one, or leave Map out for checkpoint order
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::Swizzle128x4>;
#else
using map = wr::Map<>;
#endif
static_assert(map::spec.pad_rows == 1);
