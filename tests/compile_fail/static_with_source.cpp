// A static param is never loaded.
// expect: Static: the param has no checkpoint source; remove Accepts, AlsoNamed
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using cache = wr::Param<wr::names::weight, wr::StorageView<wr::fp32>, wr::Static>;
#else
using cache = wr::Param<wr::names::weight, wr::StorageView<wr::fp32>, wr::Static, wr::AlsoNamed<wr::names::weight_scale>>;
#endif
static_assert(cache::spec.fixed);
