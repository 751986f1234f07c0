// PerShard: one scalar per module and expert.
#include <doctest/doctest.h>

#include <wreload/layout/storage_plan.hpp>
#include <wreload/layouts/names.hpp>

namespace wr = wreload;
namespace n = wreload::names;

// The docstring's example, and each member alone.
using scales = wr::PerShard<wr::fp32, wr::ExpectEqual>;
static_assert(scales::runtime == wr::dtype::fp32 && scales::expect_equal && !scales::of_all_experts);
static_assert(!wr::PerShard<wr::fp32>::expect_equal && wr::PerShard<wr::fp32, wr::OfAllExperts>::of_all_experts);
static_assert(wr::PerShard<wr::fp32, wr::OfAllExperts, wr::ExpectEqual>::expect_equal);
static_assert(wr::Param<n::input_scale, scales>::spec.kind == wr::param_kind::per_shard);

namespace {

struct Scalars : wr::ParamLayout<wr::Param<n::weight_scale_2, scales, wr::Retired>> {};
struct StackedScalars
    : wr::ParamLayout<wr::Param<n::w13_weight_scale_2, wr::PerShard<wr::fp32>, wr::From<n::weight_scale_2, n::gate_proj, n::up_proj>>,
                      wr::Param<n::w13_input_scale, wr::PerShard<wr::fp32, wr::OfAllExperts>, wr::From<n::input_scale, n::gate_proj, n::up_proj>>> {};

wr::layer_plan plan_of(std::span<const wr::param_spec> specs, const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(specs, "layer", sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return plan;
}
std::string source_of(const wr::layer_plan& plan, std::size_t param, std::size_t landing) {
  return plan.sources[static_cast<std::size_t>(plan.params[param].landings[landing].source)].name;
}

}  // namespace

TEST_CASE("one value a fused module, in row order, whole on every rank") {
  const wr::extents sizes{.shards = {{.module = "q", .rows = 8}, {.module = "k", .rows = 4}, {.module = "v", .rows = 4}}, .inner = {8}};
  for (const int rank : {0, 1}) {
    const auto plan = plan_of(Scalars::specs, sizes.cut(wr::parallel::column, {2, rank}));
    CHECK(plan.params[0].extents == wr::shape{3});
    CHECK(plan.params[0].bytes() == 12);
    REQUIRE(plan.params[0].landings.size() == 3);
    CHECK(source_of(plan, 0, 2) == "v.weight_scale_2");
    CHECK(plan.params[0].landings[2].local_row == 2);
    CHECK(plan.sources[2].extents == wr::shape{});
  }
}

TEST_CASE("per slot, or per expert of the model; the experts of other ranks are known by name") {
  wr::extents sizes{.shards = {{.module = "gate_proj", .rows = 4, .cols = 4}, {.module = "up_proj", .rows = 4, .cols = 4}}, .experts = wr::expert_slots{4, {2, 2, 1}}};
  const auto plan = plan_of(StackedScalars::specs, sizes);
  CHECK(plan.params[0].extents == wr::shape{3, 2});
  CHECK(plan.params[1].extents == wr::shape{4, 2});
  CHECK(source_of(plan, 0, 2) == "layer.2.gate_proj.weight_scale_2");
  CHECK(source_of(plan, 1, 7) == "layer.3.up_proj.input_scale");
  CHECK(plan.params[1].landings.size() == 8);
  CHECK(plan.sources.size() == 16);
}
