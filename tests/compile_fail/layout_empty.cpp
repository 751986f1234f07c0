// A layer has at least one param.
// expect: ParamLayout: no params; list at least one Param<...>
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
struct Layer : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::bf16>>> {};
#else
struct Layer : wr::ParamLayout<> {};
#endif
