// A block has at least one element.
// expect: BlockScale: block sizes are positive; give the rows and columns of one block
#include <wreload/policy/block_scale.hpp>
namespace wr = wreload;

#ifdef GOOD
using grid = wr::BlockScale<1, 128, wr::fp32>;
#else
using grid = wr::BlockScale<0, 128, wr::fp32>;
#endif
static_assert(grid::block_cols == 128);
