// Derived rules: Max, Pick, Product, Reciprocal, Launch as plain records, and their levels.
#include <doctest/doctest.h>

#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
#include <wreload/layouts/nvfp4_moe.hpp>

namespace wr = wreload;
namespace n = wreload::names;

// The docstrings' examples.
static_assert(wr::Max<n::input_scale, wr::Across<wr::shards>>::spec.factors[0].across == wr::shards::bit);
static_assert(wr::Max<n::input_scale, wr::Across<wr::experts, wr::shards>>::spec.factors[0].across == (wr::shards::bit | wr::experts::bit));
static_assert(wr::Pick<n::w13_weight_scale_2, n::up_proj>::spec.factors[0].module == "up_proj");

// A reciprocal inside a maximum inverts the values, outside it the result; of a factor it inverts that factor.
static_assert(wr::Max<wr::Reciprocal<n::input_scale>, wr::Across<wr::shards>>::spec.factors[0].inverted);
static_assert(!wr::Max<wr::Reciprocal<n::input_scale>, wr::Across<wr::shards>>::spec.inverted);
static_assert(wr::Reciprocal<wr::Max<n::input_scale, wr::Across<wr::shards>>>::spec.inverted);
static_assert(wr::Reciprocal<wr::Product<n::alpha, n::input_scale>>::spec.count == 2 && wr::Reciprocal<wr::Product<n::alpha, n::input_scale>>::spec.inverted);
using mixed = wr::Product<n::alpha, wr::Reciprocal<n::input_scale>, wr::Pick<n::w13_weight_scale_2, n::gate_proj>>;
static_assert(mixed::spec.count == 3 && !mixed::spec.factors[0].inverted && mixed::spec.factors[1].inverted && !mixed::spec.inverted);
static_assert(mixed::spec.factors[2].param == "w13_weight_scale_2");

namespace {
struct shadow {
  static constexpr wr::dtype type = wr::dtype::fp32;
  static wr::shape extents(std::span<const wr::shape> from) { return from[0]; }
  static wr::status launch(wr::stream_ref, std::span<const wr::runtime_tensor>, const wr::runtime_tensor&) { return {}; }
};
static_assert(wr::transform<shadow>);
static_assert(wr::Launch<shadow, n::weight, n::alpha>::spec.sources.size() == 2);

int level_of(std::span<const wr::param_spec> specs, std::string_view name) {
  for (const wr::param_spec& spec : specs)
    if (spec.name == name) return spec.level;
  return -2;
}

/// Listed from the last level to the first.
struct Levels : wr::ParamLayout<wr::Derived<n::g1_scale_c, wr::Bind, wr::Launch<shadow, n::g1_alphas, n::weight>>,
                                wr::Derived<n::g1_alphas, wr::Bind, wr::Product<n::alpha, n::input_scale_inv>>,
                                wr::Derived<n::alpha, wr::Bind, wr::Product<n::input_scale_inv, n::input_scale>>,
                                wr::Derived<n::input_scale_inv, wr::Bind, wr::Reciprocal<n::input_scale>>,
                                wr::Param<n::input_scale, wr::PerShard<wr::fp32>>, wr::Param<n::weight, wr::StorageView<wr::bf16>>> {};
}  // namespace

TEST_CASE("levels follow what a param reads, whatever the order of the layout") {
  CHECK(level_of(Levels::specs, "input_scale_inv") == 0);
  CHECK(level_of(Levels::specs, "alpha") == 1);
  CHECK(level_of(Levels::specs, "g1_alphas") == 2);
  CHECK(level_of(Levels::specs, "g1_scale_c") == 3);
  CHECK(level_of(wr::Nvfp4MoeTrtllm::specs, "g1_scale_c") == 1);
  CHECK(level_of(wr::Nvfp4MoeTrtllm::specs, "g1_alphas_up") == 0);
}
