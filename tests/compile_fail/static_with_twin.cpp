// A static param is never loaded, under no name.
// expect: Static: the param has no checkpoint source; remove Accepts, AlsoNamed, SameAs, From and ScaledBy
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using cache = wr::Param<n::weight, wr::StorageView<wr::fp32>, wr::Static>;
#else
using cache = wr::Param<n::weight, wr::StorageView<wr::fp32>, wr::Static, wr::SameAs<n::weight_packed>>;
#endif
static_assert(cache::spec.fixed);
