// Plain: one tensor that runs as it is stored.
#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/plain.hpp>

namespace wr = wreload;

namespace {

wr::layer_plan plan_of(const char* layer, const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(wr::Plain::specs, layer, sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return plan;
}

}  // namespace

TEST_CASE("the layer's name is the tensor's name, in the checkpoint and at run time") {
  const auto plan = plan_of("model.norm.weight", wr::extents::tensor("model.norm.weight", {4096}, wr::dtype::bf16));
  REQUIRE(plan.params.size() == 1);
  CHECK(plan.params[0].name == "model.norm.weight");
  CHECK(plan.sources[0].name == "model.norm.weight");
  CHECK(plan.sources[0].spellings.empty());
  CHECK(plan.params[0].spec.runtime == wr::dtype::bf16);
  CHECK(plan.params[0].spec.stored == wr::dtype::bf16);
  CHECK_FALSE(plan.params[0].spec.converts());
}

TEST_CASE("shards fuse along dim 0 under the tensors' own names") {
  const auto plan = plan_of("wk_weights_proj.weight", {.shards = {{.module = "wk.weight", .rows = 128}, {.module = "weights_proj.weight", .rows = 32}},
                                                       .inner = {4096},
                                                       .type = wr::dtype::bf16});
  CHECK(plan.params[0].extents == wr::shape{160, 4096});
  CHECK(plan.sources[1].name == "weights_proj.weight");
  CHECK(plan.params[0].landings[1].local_row == 128);
}

TEST_CASE("a scalar has rank 0 in the checkpoint and at run time; scalars of shards stack") {
  const auto one = plan_of("s", wr::extents::tensor("s", {}, wr::dtype::fp32));
  CHECK(one.params[0].extents == wr::shape{});
  CHECK(one.sources[0].extents == wr::shape{});
  CHECK(one.params[0].landings[0].needed == wr::rect{0, 1, 0, 1});
  wr::extents two = wr::extents::tensor("gate.s", {}, wr::dtype::fp32);
  two.shards.push_back({.module = "up.s", .rows = 1});
  const auto both = plan_of("gate_up.s", two);
  CHECK(both.params[0].extents == wr::shape{2});
  CHECK(both.sources[1].extents == wr::shape{});
}

TEST_CASE("BF16 that runs in FP32 (GLM hc_attn_fn, k_norm, convolutions)") {
  wr::extents sizes = wr::extents::tensor("hc_attn_fn", {24, 16384}, wr::dtype::fp32);
  sizes.accepts = wr::dtype::bf16;
  const auto plan = plan_of("hc_attn_fn", sizes);
  CHECK(plan.params[0].bytes() == 24 * 16384 * 4);
  CHECK(wr::to_string(plan.params[0].spec.accepted) == "BF16 or F32");
}

TEST_CASE("integers run as they are stored and accept nothing else") {
  for (const auto type : {wr::dtype::u8, wr::dtype::i64, wr::dtype::boolean, wr::dtype::fp64, wr::dtype::fp4_e2m1x2}) {
    const auto plan = plan_of("t", wr::extents::tensor("t", {3, 5}, type));
    CHECK(plan.params[0].spec.accepted == wr::dtype_set(type));
    CHECK(plan.params[0].bytes() == 15 * wr::bytes_of(type));
  }
}

TEST_CASE("a vocabulary whose rows are padded") {
  wr::extents sizes{.shards = {{.module = "lm_head.weight", .rows = 128, .checkpoint_rows = 100}}, .inner = {8}, .type = wr::dtype::bf16};
  const auto last = plan_of("lm_head.weight", sizes.cut(wr::parallel::column, {8, 7}));
  CHECK(last.params[0].landings.empty());
  CHECK(last.params[0].pads.size() == 1);
  CHECK(last.sources[0].extents == wr::shape{100, 8});
}
