// ParamLayout: the erased records of a layout, and layouts of an engine's own.
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/fp8_dequant_linear.hpp>
#include <wreload/layouts/fp8_dequant_moe.hpp>
#include <wreload/layouts/plain.hpp>

namespace wr = wreload;

namespace {

struct first { static constexpr std::string_view name = "first"; };
struct first_scale { static constexpr std::string_view name = "first_scale"; };
struct second { static constexpr std::string_view name = "second"; };
struct second_scale { static constexpr std::string_view name = "second_scale"; };
struct third { static constexpr std::string_view name = "third"; };

using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>;

// Scales before, between and behind their weights.
struct Two : wr::ParamLayout<wr::Param<second_scale, wr::BlockScale<64, 32, wr::bf16>, wr::Retired>,
                             wr::Param<first, view, wr::ScaledBy<first_scale>>,
                             wr::Param<third, wr::StorageView<wr::fp32>, wr::Accepts<wr::bf16>, wr::Kept>,
                             wr::Param<second, view, wr::ScaledBy<second_scale>>,
                             wr::Param<first_scale, wr::BlockScale<1, 16, wr::fp32>, wr::Retired>> {};

struct hand_made {
  static constexpr std::array<wr::param_spec, 1> specs = {wr::param_spec{.name = "w", .leaf = "w", .runtime = wr::dtype::u8}};
};
struct not_a_layout {};

// The same leaf from different modules is not the same tensor; a static param has no checkpoint name to collide.
struct Stacked : wr::ParamLayout<
                     wr::Param<wr::names::w13_weight, wr::StorageView<wr::bf16>, wr::From<wr::names::weight, wr::names::gate_proj, wr::names::up_proj>>,
                     wr::Param<wr::names::w2_weight, wr::StorageView<wr::bf16>, wr::From<wr::names::weight, wr::names::down_proj>>> {};
struct WithStatic : wr::ParamLayout<wr::Param<first, wr::StorageView<wr::bf16>, wr::AlsoNamed<second>>,
                                    wr::Param<second, wr::StorageView<wr::bf16>, wr::Static>> {};

}  // namespace

static_assert(Two::size == 5 && Stacked::size == 2 && WithStatic::size == 2);
static_assert(wr::param_layout<Two> && wr::param_layout<hand_made> && wr::param_layout<wr::Plain>);
static_assert(!wr::param_layout<not_a_layout> && !wr::param_layout<int>);
static_assert(std::is_trivially_copyable_v<wr::param_spec>);
static_assert(std::is_empty_v<Two>);  // a layout is a description: no state

TEST_CASE("scales are found by name, wherever they stand") {
  CHECK(Two::specs[0].scaled_by == -1);
  CHECK(Two::specs[1].scaled_by == 4);
  CHECK(Two::specs[2].scaled_by == -1);
  CHECK(Two::specs[3].scaled_by == 0);
  CHECK(Two::specs[4].scaled_by == -1);
}

TEST_CASE("a record keeps what the policies say") {
  const wr::param_spec& scale = Two::specs[0];
  CHECK(scale.name == "second_scale");
  CHECK(scale.leaf == "second_scale");
  CHECK(scale.is_block_scale);
  CHECK(scale.block_rows == 64);
  CHECK(scale.block_cols == 32);
  CHECK(scale.stored == wr::dtype::bf16);
  CHECK(scale.runtime == wr::dtype::bf16);
  CHECK(scale.accepted == wr::dtype_set(wr::dtype::bf16));
  CHECK(scale.retired);
  CHECK_FALSE(scale.converts());
  const wr::param_spec& weight = Two::specs[1];
  CHECK(weight.converts());
  CHECK_FALSE(weight.is_block_scale);
  CHECK(weight.accepted == (wr::dtype_set(wr::dtype::fp8_e4m3) | wr::dtype::bf16));
  CHECK(Two::specs[2].kept);
  CHECK(Two::specs[2].accepted == (wr::dtype_set(wr::dtype::fp32) | wr::dtype::bf16));
}

TEST_CASE("the ready-made layouts say what their headers say") {
  const auto& linear = wr::Fp8DequantLinear::specs;
  REQUIRE(linear.size() == 2);
  CHECK(linear[0].scaled_by == 1);
  CHECK(linear[1].block_rows == 128);
  CHECK(linear[1].spellings.size() == 1);
  CHECK(linear[1].spellings[0] == "weight_scale");
  const auto& moe = wr::Fp8DequantMoe::specs;
  REQUIRE(moe.size() == 4);
  CHECK(moe[0].modules.size() == 2);
  CHECK(moe[0].leaf == "weight");
  CHECK(moe[1].leaf == "weight_scale_inv");
  CHECK(moe[2].modules[0] == "down_proj");
  CHECK(moe[2].scaled_by == 3);
}
