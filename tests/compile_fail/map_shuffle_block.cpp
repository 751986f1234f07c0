// Kernels know two blocks.
// expect: ShuffleRows: kernels shuffle blocks of 16 or 32 rows; write ShuffleRows<16> or ShuffleRows<32>
#include <wreload/policy/map.hpp>
namespace wr = wreload;

#ifdef GOOD
using map = wr::Map<wr::ShuffleRows<16>>;
#else
using map = wr::Map<wr::ShuffleRows<8>>;
#endif
static_assert(!map::spec.swizzled);
