// AlsoNamed, SameAs, From, Accepts: under which checkpoint names and dtypes a param's bytes may come.
#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/names.hpp>

namespace wr = wreload;

namespace {

struct second_name { static constexpr std::string_view name = "second_name"; };
struct third_name { static constexpr std::string_view name = "third_name"; };

}  // namespace

static_assert(wr::AlsoNamed<second_name, third_name>::names.size() == 2);
static_assert(wr::AlsoNamed<second_name, third_name>::names[1] == "third_name");
static_assert(wr::SameAs<second_name>::names[0] == "second_name");
static_assert(wr::From<wr::names::weight, wr::names::gate_proj, wr::names::up_proj>::leaf == "weight");
static_assert(wr::From<wr::names::weight, wr::names::gate_proj, wr::names::up_proj>::modules[1] == "up_proj");
static_assert(wr::Accepts<wr::bf16, wr::fp8_ue8m0>::set == (wr::dtype_set(wr::dtype::bf16) | wr::dtype::fp8_ue8m0));
static_assert(wr::Accepts<wr::bf16>::types.size() == 1);

namespace {

struct TwoSpellings : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::AlsoNamed<second_name, third_name>>> {};
struct Twin : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::bf16>, wr::SameAs<second_name>>> {};
struct Stacked : wr::ParamLayout<wr::Param<wr::names::w13_weight, wr::StorageView<wr::bf16>,
                                           wr::From<wr::names::weight, wr::names::gate_proj, wr::names::up_proj>>> {};
struct Upcast : wr::ParamLayout<wr::Param<wr::names::weight, wr::StorageView<wr::fp32>, wr::Accepts<wr::bf16, wr::fp16>>> {};

wr::layer_plan plan_of(std::span<const wr::param_spec> specs, const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(specs, "layer", sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return plan;
}

}  // namespace

TEST_CASE("AlsoNamed: further spellings of each checkpoint module's tensor") {
  const auto plan = plan_of(TwoSpellings::specs, {.shards = {{.module = "a", .rows = 1}, {.module = "b", .rows = 2}}, .inner = {3}});
  REQUIRE(plan.sources.size() == 2);
  CHECK(plan.sources[0].name == "a.weight");
  CHECK(plan.sources[0].spellings == std::vector<std::string>{"a.second_name", "a.third_name"});
  CHECK(plan.sources[1].spellings == std::vector<std::string>{"b.second_name", "b.third_name"});
  CHECK(plan.sources[0].twins.empty());
}

TEST_CASE("SameAs: a second name of the same bytes, kept apart from spellings") {
  const auto plan = plan_of(Twin::specs, wr::extents::matrix("a", 1, 3));
  CHECK(plan.sources[0].twins == std::vector<std::string>{"a.second_name"});
  CHECK(plan.sources[0].spellings.empty());
}

TEST_CASE("From: modules in the policy's row order, whatever the order of the shards") {
  const auto plan = plan_of(Stacked::specs, {.shards = {{.module = "up_proj", .rows = 5}, {.module = "gate_proj", .rows = 3}},
                                             .inner = {4},
                                             .experts = wr::expert_slots::all(2)});
  const auto& landings = plan.params[0].landings;
  REQUIRE(landings.size() == 4);
  const auto source = [&](std::size_t i) { return plan.sources[static_cast<std::size_t>(landings[i].source)].name; };
  CHECK(source(0) == "layer.0.gate_proj.weight");
  CHECK(source(1) == "layer.0.up_proj.weight");
  CHECK(source(2) == "layer.1.gate_proj.weight");
  CHECK(source(3) == "layer.1.up_proj.weight");
  CHECK(landings[1].local_row == 3);
  CHECK(landings[2].local_row == 8);
  CHECK(plan.params[0].name == "layer.w13_weight");
  CHECK(plan.params[0].extents == wr::shape{2, 8, 4});
}

TEST_CASE("Accepts: further dtypes may be loaded, the storage stays") {
  const wr::param_spec& spec = Upcast::specs[0];
  CHECK(spec.runtime == wr::dtype::fp32);
  CHECK(wr::to_string(spec.accepted) == "F16 or BF16 or F32");
  CHECK_FALSE(spec.converts());
}
