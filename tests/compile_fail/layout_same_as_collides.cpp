// The second name of one param is a spelling of another.
// expect: ParamLayout: duplicate names; two params read the same checkpoint name (AlsoNamed, SameAs, From): rename or remove one
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

struct bias { static constexpr std::string_view name = "bias"; };
struct b { static constexpr std::string_view name = "b"; };
struct w { static constexpr std::string_view name = "w"; };

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::SameAs<w>>;
#else
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::SameAs<b>>;
#endif

struct Layer : wr::ParamLayout<weight, wr::Param<bias, wr::StorageView<wr::bf16>, wr::AlsoNamed<b>>> {};
