// A param's name is a tag type: a string as template argument breaks every kernel that sees it.
// expect: template
#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>>;
#else
using weight = wr::Param<"weight", wr::StorageView<wr::bf16>>;
#endif
static_assert(weight::spec.name == "weight");
