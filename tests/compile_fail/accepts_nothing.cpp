// Accepts lists dtypes.
// expect: Accepts: names no dtype; list at least one
#include <wreload/policy/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using more = wr::Accepts<wr::bf16>;
#else
using more = wr::Accepts<>;
#endif
static_assert(sizeof(more) == 1);
