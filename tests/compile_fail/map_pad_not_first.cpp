// Rows are padded before they are shuffled.
// expect: PadToMultiple: pads checkpoint rows and columns; list it first in the Map
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::PadToMultiple<128, 64>, wr::ShuffleRows<32>>;
#else
using map = wr::Map<wr::ShuffleRows<32>, wr::PadToMultiple<128, 64>>;
#endif
static_assert(map::spec.pad_rows == 128);
