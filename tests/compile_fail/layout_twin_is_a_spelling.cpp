// A spelling and a second name are two things.
// expect: ParamLayout: duplicate names; a param lists one checkpoint name twice
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::bf16>, wr::AlsoNamed<n::weight_packed>>> {};
#else
struct layer : wr::ParamLayout<wr::Param<n::weight, wr::StorageView<wr::bf16>, wr::AlsoNamed<n::weight_packed>, wr::SameAs<n::weight_packed>>> {};
#endif
static_assert(layer::size > 0);
