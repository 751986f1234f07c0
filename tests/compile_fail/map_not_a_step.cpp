// A step is one of the library's; a dtype is none.
// expect: map_step
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::SwapHalves>;
#else
using map = wr::Map<wr::fp8_e4m3>;
#endif
static_assert(map::spec.pad_rows == 1);
