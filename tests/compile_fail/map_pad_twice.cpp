// One pad holds both sides.
// expect: PadToMultiple: stands twice in the Map; keep one
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::PadToMultiple<128, 64>>;
#else
using map = wr::Map<wr::PadToMultiple<128, 1>, wr::PadToMultiple<1, 64>>;
#endif
static_assert(map::spec.pad_cols == 64);
