// A second transpose would undo the first.
// expect: MnMajor: stands twice in the Map, which undoes it; keep one or none
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::MnMajor>;
#else
using map = wr::Map<wr::MnMajor, wr::MnMajor>;
#endif
static_assert(map::spec.mn_major);
