// Retired, Kept, Static: who reads a param, and whether it must come with every complete update.
#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/names.hpp>

namespace wr = wreload;

static_assert(wr::Retired::retired && !wr::Retired::kept && !wr::Retired::fixed);
static_assert(!wr::Kept::retired && wr::Kept::kept && !wr::Kept::fixed);
static_assert(!wr::Static::retired && !wr::Static::kept && wr::Static::fixed);

namespace {

struct input_scale { static constexpr std::string_view name = "input_scale"; };
struct rotary_cache { static constexpr std::string_view name = "rotary_cache"; };

struct Quantised
    : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>,
                                wr::ScaledBy<wr::names::weight_scale>>,
                      wr::Param<wr::names::weight_scale, wr::BlockScale<128, 128, wr::fp32>, wr::Retired>> {};
struct KeptScale : wr::ParamLayout<wr::Param<input_scale, wr::StorageView<wr::fp32>, wr::Kept>> {};
struct Rotary : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::bf16>>,
                                wr::Param<rotary_cache, wr::StorageView<wr::fp32>, wr::Static>> {};

wr::layer_plan plan_of(std::span<const wr::param_spec> specs, const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(specs, "layer", sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return plan;
}

}  // namespace

TEST_CASE("a param without a lifetime is read, required and has a source") {
  const wr::param_spec& weight = Quantised::specs[0];
  CHECK_FALSE(weight.retired);
  CHECK_FALSE(weight.kept);
  CHECK_FALSE(weight.fixed);
}

TEST_CASE("a retired scale still has storage and landings") {
  const wr::layer_plan plan = plan_of(Quantised::specs, wr::extents::matrix("layer", 256, 256));
  CHECK(plan.params[1].spec.retired);
  CHECK(plan.params[1].bytes() == 16);
  CHECK(plan.params[1].landings.size() == 1);
}

TEST_CASE("a kept param is marked so, and loaded like any other") {
  const wr::layer_plan plan = plan_of(KeptScale::specs, wr::extents::matrix("layer", 1, 1));
  CHECK(plan.params[0].spec.kept);
  CHECK(plan.params[0].landings.size() == 1);
  CHECK(plan.sources[0].name == "layer.input_scale");
}

TEST_CASE("a static param has storage, but neither source nor landing nor pad") {
  const wr::layer_plan plan = plan_of(Rotary::specs, wr::extents::matrix("layer", 4, 8));
  REQUIRE(plan.params.size() == 2);
  CHECK(plan.params[1].spec.fixed);
  CHECK(plan.params[1].bytes() == 4 * 8 * 4);
  CHECK(plan.params[1].landings.empty());
  CHECK(plan.params[1].pads.empty());
  REQUIRE(plan.sources.size() == 1);
  CHECK(plan.sources[0].name == "layer.weight");
}
