// describe: a layer in words. Golden text, so that a change shows.
#include <string>

#include <doctest/doctest.h>

#include <wreload/layout/describe.hpp>
#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/fp8_dequant_linear.hpp>
#include <wreload/layouts/plain.hpp>

namespace wr = wreload;

namespace {

struct cache { static constexpr std::string_view name = "cache"; };
struct input_scale { static constexpr std::string_view name = "input_scale"; };
struct Mixed : wr::ParamLayout<wr::Param<input_scale, wr::StorageView<wr::fp32>, wr::Kept>,
                               wr::Param<cache, wr::StorageView<wr::fp32>, wr::Static>> {};

std::string described(std::span<const wr::param_spec> specs, const char* name, const wr::extents& sizes) {
  wr::layer_plan plan;
  const wr::status error = wr::plan_layer(specs, name, sizes, plan);
  REQUIRE_MESSAGE(error.ok(), error.message());
  return wr::describe(plan);
}

}  // namespace

TEST_CASE("a fused FP8 layer, second of two ranks, with pad rows") {
  const wr::extents sizes{.shards = {{.module = "q_a_proj", .rows = 1536},
                                     {.module = "kv_a_proj", .rows = 576, .checkpoint_rows = 512}},
                          .inner = {7168}};
  CHECK(described(wr::Fp8DequantLinear::specs, "fused_qkv_a_proj", sizes.cut(wr::parallel::column, {2, 1})) ==
        "fused_qkv_a_proj.weight  BF16 [1056, 7168]  view F8_E4M3  15138816 bytes\n"
        "    row 0 <- q_a_proj.weight rows 768..1536, cols 0..7168\n"
        "    row 768 <- kv_a_proj.weight rows 288..512, cols 0..7168\n"
        "    row 992 <- 64 rows of zeros\n"
        "fused_qkv_a_proj.weight_scale_inv  F32 [8, 56]  scale per 128x128  1792 bytes  retired\n"
        "    row 0 <- q_a_proj.weight_scale_inv rows 6..12, cols 0..56\n"
        "    row 6 <- kv_a_proj.weight_scale_inv rows 2..4, cols 0..56\n");
}

TEST_CASE("a plain tensor has no suffix") {
  CHECK(described(wr::Plain::specs, "model.norm.weight", wr::extents::tensor("model.norm.weight", {4096}, wr::dtype::bf16)) ==
        "model.norm.weight  BF16 [4096]  8192 bytes\n"
        "    row 0 <- model.norm.weight rows 0..4096, cols 0..1\n");
}

TEST_CASE("kept and static params are marked") {
  CHECK(described(Mixed::specs, "attn", wr::extents::matrix("attn", 1, 2)) ==
        "attn.input_scale  F32 [1, 2]  8 bytes  kept\n"
        "    row 0 <- attn.input_scale rows 0..1, cols 0..2\n"
        "attn.cache  F32 [1, 2]  8 bytes  static\n");
}
