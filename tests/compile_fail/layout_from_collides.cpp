// Two stacked params read one tensor of one module.
// expect: ParamLayout: duplicate names; two params read the same checkpoint name (AlsoNamed, SameAs, From): rename or remove one
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using third = wr::names::down_proj;
#else
using third = wr::names::up_proj;
#endif

struct Layer : wr::ParamLayout<
    wr::Param<wr::names::w13_weight, wr::StorageView<wr::bf16>, wr::From<wr::names::weight, wr::names::gate_proj, wr::names::up_proj>>,
    wr::Param<wr::names::w2_weight, wr::StorageView<wr::bf16>, wr::From<wr::names::weight, third>>> {};
