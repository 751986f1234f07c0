// A spelling of one param is the checkpoint name of another.
// expect: ParamLayout: duplicate names; two params read the same checkpoint name (AlsoNamed, SameAs, From): rename or remove one
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

struct bias { static constexpr std::string_view name = "bias"; };

#ifdef GOOD
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>>;
#else
using weight = wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::AlsoNamed<bias>>;
#endif

struct Layer : wr::ParamLayout<weight, wr::Param<bias, wr::StorageView<wr::bf16>>> {};
