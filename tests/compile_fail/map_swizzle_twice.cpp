// A second swizzle would scatter swizzled bytes.
// expect: Swizzle128x4: stands twice in the Map and would swizzle swizzled bytes; keep one
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::Swizzle128x4>;
#else
using map = wr::Map<wr::Swizzle128x4, wr::Swizzle128x4>;
#endif
static_assert(map::spec.swizzled);
