// In the transpose there are no whole rows to swap.
// expect: MnMajor: leaves no whole rows to the steps behind it; list it last in the Map
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::SwapHalves, wr::MnMajor>;
#else
using map = wr::Map<wr::MnMajor, wr::SwapHalves>;
#endif
static_assert(map::spec.mn_major);
