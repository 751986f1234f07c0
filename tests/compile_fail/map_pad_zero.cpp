// Nothing is a multiple of zero.
// expect: PadToMultiple: multiples are positive; write 1 for a side without pad
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::PadToMultiple<32, 1>>;
#else
using map = wr::Map<wr::PadToMultiple<32, 0>>;
#endif
static_assert(map::spec.pad_rows == 32);
