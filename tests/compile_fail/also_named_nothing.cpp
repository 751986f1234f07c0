// AlsoNamed lists spellings.
// expect: AlsoNamed: names no spelling; list at least one name
#include <wreload/policy/names.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using more = wr::AlsoNamed<wr::names::weight_scale>;
#else
using more = wr::AlsoNamed<>;
#endif
static_assert(sizeof(more) == 1);
