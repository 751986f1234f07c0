// One grid cannot scale two weights: each has rows of its own.
// expect: ScaledBy: one scale for two weights; give each weight a BlockScale param of its own
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

struct second { static constexpr std::string_view name = "second"; };
struct second_scale { static constexpr std::string_view name = "second_scale"; };

using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>;
using grid = wr::BlockScale<128, 128, wr::fp32>;

struct Layer : wr::ParamLayout<
    wr::Param<wr::names::weight, view, wr::ScaledBy<wr::names::weight_scale>>,
    wr::Param<wr::names::weight_scale, grid, wr::Retired>,
#ifdef GOOD
    wr::Param<second_scale, grid, wr::Retired>,
    wr::Param<second, view, wr::ScaledBy<second_scale>>> {};
#else
    wr::Param<second, view, wr::ScaledBy<wr::names::weight_scale>>> {};
#endif
