// Two params of one name, even under two tags.
// expect: ParamLayout: duplicate names; give every Param its own name
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
struct other { static constexpr std::string_view name = "bias"; };
#else
struct other { static constexpr std::string_view name = "weight"; };
#endif

struct Layer : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::bf16>>,
                               wr::Param<other, wr::StorageView<wr::bf16>>> {};
