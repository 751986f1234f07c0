// Two orders of the same bytes.
// expect: MnMajor: another order than Swizzle128x4; keep one of the two
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::MnMajor>;
#else
using map = wr::Map<wr::Swizzle128x4, wr::MnMajor>;
#endif
static_assert(map::spec.mn_major);
