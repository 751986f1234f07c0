// A name tag has a static `name`.
// expect: constraints not satisfied
// expect: name_tag
#include <wreload/layout/param.hpp>
namespace wr = wreload;

#ifdef GOOD
struct weight { static constexpr std::string_view name = "weight"; };
#else
struct weight {};
#endif
static_assert(wr::Param<weight, wr::StorageView<wr::bf16>>::spec.runtime == wr::dtype::bf16);
