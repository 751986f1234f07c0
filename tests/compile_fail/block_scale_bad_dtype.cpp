// A scale has one of four dtypes.
// expect: BlockScale: a scale is fp32, bf16, fp8_ue8m0 or fp8_e4m3; use one of them
#include <wreload/policy/block_scale.hpp>
namespace wr = wreload;

#ifdef GOOD
using grid = wr::BlockScale<128, 128, wr::fp32>;
#else
using grid = wr::BlockScale<128, 128, wr::fp64>;
#endif
static_assert(grid::is_block_scale);
