// A dtype in a template list is a tag type, never a C++ arithmetic type.
// expect: a dtype is one of wreload's tags
#include <wreload/core/dtype.hpp>

#ifdef GOOD
using element = wreload::bf16;
#else
using element = float;
#endif

static_assert(wreload::dtype_tag<element>, "a dtype is one of wreload's tags");
