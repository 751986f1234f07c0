// Faults that reloading has had in public, each the smallest sequence on this library's own layouts
// (reference/failures.md of the project; the id names the thread).
#include <sys/mman.h>

#include "layout_engine.hpp"

namespace wreload::test {
namespace {

using host = engine<host_executor>;
using reference::cut;

/// Experts [gate; up] and down of `local`, BF16 or FP8.
reference::layer experts(std::int64_t total, std::vector<std::int64_t> local) {
  reference::layer layer{.what = reference::kind::moe,
                         .name = "experts",
                         .block_rows = 2,
                         .block_cols = 3,
                         .experts_total = total,
                         .experts_local = std::move(local)};
  for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
    layer.shards.push_back(whole_shard(module, 4));
    layer.shards.back().cols = 4;
  }
  return layer;
}

status load(host& tested, update<host_executor>& open, std::string_view name, const reference::tensor& tensor) {
  return open.load(name, tested.place(tensor));
}

/// Many FP8 layers, so that a bucket of any size cuts some weight from its scale.
std::vector<reference::layer> many_tensors() {
  std::vector<reference::layer> layers;
  for (int i = 0; i < 12; ++i) layers.push_back(linear("l" + std::to_string(i), 5, 7));
  return layers;
}

}  // namespace

TEST_CASE("vllm#31713, vllm#48284: the identical checkpoint again and again is a no-op") {
  host tested(small_model(), 1);
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  const auto once = tested.image();
  for (int i = 0; i < 3; ++i) {
    tested.reload(all);
    CHECK(once == tested.image());
  }
  tested.demand_cold(all);
}

TEST_CASE("vllm#42821: unquantised experts loaded twice keep their halves in order") {
  host tested({experts(3, {0, 1, 2})});
  const auto all = random_checkpoint(tested.layers(), 1, stored_as::bf16);
  tested.reload(all);
  tested.reload(all);
  CHECK(tested.difference(all) == "");
}

TEST_CASE("vime#248: FP8 experts whose scales never come are refused by name") {
  host tested({experts(2, {0, 1})});
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);  // scales of before lie in memory
  auto open = tested.start();
  for (const auto& [name, value] : all)
    if (!name.ends_with("_scale_inv")) must(load(tested, open, name, value));
  check_refused(open.finish(), error_code::incomplete, ".weight_scale_inv");
  CHECK(open.report().missing.size() == 6);
}

TEST_CASE("Automodel#2682: bytes of per-expert views reach the stacked storage itself") {
  host tested({experts(3, {0, 1, 2})});
  const auto all = random_checkpoint(tested.layers(), 1, stored_as::bf16);
  tested.reload(all);
  const auto stacked = tested.dense("experts.w13_weight");
  for (std::size_t expert = 0; expert < 3; ++expert) {
    const auto& gate = all.at("experts." + std::to_string(expert) + ".gate_proj.weight").bytes;
    CHECK(std::equal(gate.begin(), gate.end(), stacked.begin() + static_cast<std::ptrdiff_t>(expert * 64)));
  }
}

TEST_CASE("vllm#38746: one bias that two modules read, sent once, completes both") {
  auto layers = std::vector{plain("router.bias", {64}), plain("experts.bias", {64})};
  layers[1].shards[0].module = "router.bias";
  host tested(layers);
  const auto all = random_checkpoint(layers, 1);
  CHECK(all.size() == 1);
  tested.reload(all);
  CHECK(tested.difference(all) == "");
}

TEST_CASE("vllm#38995: a 0-dim tensor counts, is missed, and lands") {
  host tested({plain("k_scale", {}, dtype::fp32), plain("norm", {4})});
  const auto all = random_checkpoint(tested.layers(), 1);
  auto open = tested.start();
  must(tested.send(open, all, "norm"));
  check_refused(open.finish(), error_code::incomplete, "k_scale");
  must(tested.send(open, all, "k_scale"));
  must(open.finish());
  CHECK(open.report().loaded.tensors == 2);
  CHECK(tested.difference(all) == "");
}

TEST_CASE("vllm#44814: three tensors of n elements, one sent twice: the third is still missing") {
  host tested({plain("A", {8}), plain("dt", {8}), plain("D", {8})});
  const auto all = random_checkpoint(tested.layers(), 1);
  auto open = tested.start();
  must(tested.send(open, all, "A"));
  CHECK(tested.send(open, all, "A").code == error_code::duplicate);
  must(tested.send(open, all, "dt"));
  check_refused(open.finish(), error_code::incomplete, "D");
  must(tested.send(open, all, "D"));
  must(open.finish());
  CHECK(tested.difference(all) == "");
}

TEST_CASE("vllm#49178, sglang#14178, prime-rl#3175, sglang#17107: the result does not depend on buckets") {
  host tested(many_tensors());
  const auto all = random_checkpoint(tested.layers(), 1);
  for (const std::size_t bucket : {1U, 2U, 3U, 5U, 10U, 23U, 1000U}) {
    tested.reload(random_checkpoint(tested.layers(), 2));
    auto open = tested.start();
    std::vector<piece> batch;
    for (const auto& [name, value] : all) {
      batch.push_back({.name = name, .tensor = tested.place(value)});
      if (batch.size() < bucket) continue;
      must(open.load(batch));
      batch.clear();
    }
    must(open.load(batch));
    CHECK(open.report().converted_rows == 0);  // nothing is processed between buckets
    must(open.finish());
    CHECK(open.report().converted_rows == 12 * 5);
    CHECK(tested.difference(all) == "");
  }
}

TEST_CASE("vllm#42481: a buffer that aliases another's bytes is refused at seal") {
  std::byte memory[64];
  model<host_executor> aliased;
  must(aliased.add<Plain>("child.weight", extents::tensor("child.weight", {8}, dtype::bf16), memory));
  must(aliased.add<Plain>("parent.scratch", extents::tensor("parent.scratch", {8}, dtype::bf16), memory));
  check_refused(aliased.seal(), error_code::bad_layout, "child.weight");
}

TEST_CASE("vllm#50523: pad rows are zero after every reload") {
  reference::layer layer = linear("w", {whole_shard("w", 9)}, 5);
  layer.shards[0].checkpoint_rows = layer.shards[0].tensor_rows = 7;
  host tested({layer});
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    tested.reload(random_checkpoint(tested.layers(), seed));
    const auto bytes = tested.dense("w.weight");
    for (std::size_t i = 70; i < 90; ++i) CHECK(bytes[i] == std::byte{});
  }
}

TEST_CASE("TensorRT#1612, pytorch/TensorRT#4198: names that were not set are listed, one by one") {
  host tested(many_tensors());
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  auto open = tested.start();
  for (const auto& [name, value] : all)
    if (!name.starts_with("l7.") && name != "l9.weight") must(load(tested, open, name, value));
  check_refused(open.finish(), error_code::incomplete, "l7.weight");
  CHECK(open.report().missing.size() == 2);
  for (const std::string& each : open.report().missing)
    CHECK((each.starts_with("l7.weight") || each.starts_with("l9.weight")));
}

TEST_CASE("miles#1926: a module that received nothing is not post-processed") {
  host tested(many_tensors());
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  const std::vector<std::string_view> names = {"l0.weight", "l0.weight_scale_inv"};
  auto open = tested.start_partial(names);
  for (const std::string_view name : names) must(tested.send(open, all, name));
  must(open.finish());
  CHECK(open.report().converted_rows == 5);
  CHECK(tested.difference(all) == "");
}

TEST_CASE("sglang#15890: the last pipeline stage reads its tied head from the embedding's name") {
  reference::layer head = plain("lm_head.weight", {8, 3});
  head.shards[0].module = "embed_tokens.weight";
  host tested({head});
  const auto all = random_checkpoint(tested.layers(), 1);
  CHECK(all.contains("embed_tokens.weight"));
  tested.reload(all);
  CHECK(tested.difference(all) == "");
}

TEST_CASE("labs-molt#26, vllm#51665: a tied head that is sent too is an alias; embed alone updates both") {
  host tested({plain("embed", {8, 3})}, 0, [](model<host_executor>& model) { model.same_as("embed", "lm_head"); });
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  auto open = tested.start();
  must(tested.send(open, a, "embed"));
  must(load(tested, open, "lm_head", a.at("embed")));
  must(open.finish());
  CHECK(open.report().warnings.empty());
  tested.reload(b);  // the embedding only
  CHECK(tested.difference(b) == "");
  auto differs = tested.start();  // not tied after all: said, not guessed
  must(tested.send(differs, b, "embed"));
  must(load(tested, differs, "lm_head", a.at("embed")));
  check_refused(differs.finish(), error_code::conflict, "lm_head");
}

TEST_CASE("sglang#9379: known elsewhere is fine, unknown is an error, owned but absent is an error at finish") {
  host tested({experts(4, {2, 3}), plain("norm", {4})}, 0,
              [](model<host_executor>& model) { model.foreign("stage1.*"); });
  const auto all = random_checkpoint(tested.layers(), 1);
  auto open = tested.start();
  for (const auto& [name, value] : all)
    if (!name.starts_with("experts.3.up_proj.weight")) must(load(tested, open, name, value));
  must(load(tested, open, "stage1.norm", all.at("norm")));
  check_refused(load(tested, open, "stage2.norm", all.at("norm")), error_code::unknown_name, "stage2.norm");
  check_refused(open.finish(), error_code::incomplete, "experts.3.up_proj.weight");
}

TEST_CASE("prime-rl#2640: one more level of nesting on every name matches nothing, and says so") {
  host tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  const auto before = tested.image();
  auto open = tested.start();
  for (const auto& [name, value] : all)
    check_refused(load(tested, open, "model." + name, value), error_code::unknown_name, "model." + name);
  check_refused(open.finish(), error_code::incomplete);
  must(open.abort());
  CHECK(tested.model().state() == model_state::live);
  CHECK(before == tested.image());
}

TEST_CASE("Quark#42: weight_scale or weight_scale_inv, exactly one of them") {
  host tested({linear("w", 5, 7)});
  const auto all = random_checkpoint(tested.layers(), 1);
  auto open = tested.start();
  must(tested.send(open, all, "w.weight"));
  must(load(tested, open, "w.weight_scale", all.at("w.weight_scale_inv")));
  check_refused(tested.send(open, all, "w.weight_scale_inv"), error_code::duplicate, "w.weight_scale_inv");
  must(open.finish());
  CHECK(tested.difference(all) == "");
}

TEST_CASE("mlx-lm#1192: an e4m3 payload that is called U8 is refused, not read as integers") {
  host tested({linear("w", 5, 7), plain("flat", {4}, dtype::bf16, {dtype::fp8_e4m3})});
  auto all = random_checkpoint(tested.layers(), 1);
  auto open = tested.start();
  for (const char* name : {"w.weight", "flat"}) {
    auto bytes = all.at(name);
    bytes.type = dtype::u8;
    check_refused(load(tested, open, name, bytes), error_code::wrong_dtype, name);
  }
  all["flat"] = tensor_of(dtype::fp8_e4m3, {4}, std::vector<std::uint8_t>{0x38, 0xB8, 0x01, 0x7E});
  must(tested.send(open, all));
  must(open.finish());
  CHECK(tested.difference(all) == "");
  CHECK(tested.dense("flat") ==
        tensor_of(dtype::bf16, {4}, std::vector<std::uint16_t>{0x3F80, 0xBF80, 0x3B00, 0x43E0}).bytes);
}

TEST_CASE("unsloth#6978: block FP8 into a module that stayed BF16 is refused; so is its scale") {
  host plain_bf16({plain("w.weight", {5, 7})});
  host dequant({linear("w", 5, 7)});
  const auto all = random_checkpoint(dequant.layers(), 1);
  auto open = plain_bf16.start();
  check_refused(load(plain_bf16, open, "w.weight", all.at("w.weight")), error_code::wrong_dtype, "w.weight");
  check_refused(load(plain_bf16, open, "w.weight_scale_inv", all.at("w.weight_scale_inv")), error_code::unknown_name,
                "w.weight_scale_inv");
  dequant.reload(all);
  CHECK(dequant.difference(all) == "");
}

TEST_CASE("miles#1641: an FP8 weight with no scale anywhere is an error") {
  host tested({linear("w", 5, 7)});
  const auto all = random_checkpoint(tested.layers(), 1);
  auto open = tested.start();
  must(tested.send(open, all, "w.weight"));
  check_refused(open.finish(), error_code::incomplete, "w.weight_scale_inv");
}

TEST_CASE("NeMo-RL#3540, trl#3399: an fp32 bias takes no rounded value unless it says so") {
  host tested({plain("bias", {4}, dtype::fp32)});
  auto open = tested.start();
  check_refused(load(tested, open, "bias", halves(4, 0x3F80)), error_code::wrong_dtype, "bias");
  must(load(tested, open, "bias", floats(4, 0.1F)));
  must(open.finish());
  CHECK(tested.dense("bias") == floats(4, 0.1F).bytes);
}

TEST_CASE("vllm#51946: e8m0 scale byte 120 is 2^-7, not 120") {
  host tested({linear("w", 2, 3)});
  const reference::checkpoint all = {
      {"w.weight", tensor_of(dtype::fp8_e4m3, {2, 3}, std::vector<std::uint8_t>{0x38, 0x40, 0xB8, 0x30, 0, 0x80})},
      {"w.weight_scale_inv", tensor_of(dtype::fp8_ue8m0, {1, 1}, std::vector<std::uint8_t>{120})}};
  auto open = tested.start();
  auto as_u8 = all.at("w.weight_scale_inv");
  as_u8.type = dtype::u8;
  check_refused(load(tested, open, "w.weight_scale_inv", as_u8), error_code::wrong_dtype, "w.weight_scale_inv");
  must(tested.send(open, all));
  must(open.finish());
  CHECK(tested.dense("w.weight_scale_inv") == floats(1, 0.0078125F).bytes);
  CHECK(tested.difference(all) == "");
}

TEST_CASE("vllm#7534, vllm#41173, vllm#43297: [1] into [], [] into [1], and nothing longer") {
  host tested(
      {plain("scalar", {}, dtype::fp32), plain("one", {1}, dtype::fp32), plain("cube", {1, 1, 1}, dtype::fp32)});
  for (const reference::dims& sizes : {reference::dims{}, {1}, {1, 1}}) {
    auto open = tested.start();
    for (const char* name : {"scalar", "one", "cube"}) {
      const auto two = floats(2, 1.0F);
      check_refused(load(tested, open, name, two), error_code::wrong_shape, name);
      must(load(tested, open, name, tensor_of(dtype::fp32, sizes, std::vector{3.5F})));
    }
    must(open.finish());
    for (const char* name : {"scalar", "one", "cube"}) CHECK(tested.dense(name) == floats(1, 3.5F).bytes);
  }
}

TEST_CASE("modelexpress#762: tensors of zero bytes with a null address are fine, and counted") {
  host tested({plain("empty", {0, 5}), plain("full", {2})});
  auto open = tested.start();
  must(open.load("empty", {.data = nullptr, .type = dtype::bf16, .extents = {0, 5}}));
  must(load(tested, open, "full", halves(2, 1)));
  must(open.finish());
  CHECK(open.report().loaded.tensors == 2);
  tested.reload({{"full", halves(2, 2)}});  // and nobody waits for them
}

TEST_CASE("vllm#48025: a replicated param of 576 rows starts at row 0 on every rank") {
  for (int rank = 0; rank < 3; ++rank) {
    reference::layer layer = linear("kv_a_proj_with_mqa", {whole_shard("kv_a_proj_with_mqa", 576)}, 4, 128, 128);
    layer.tp_size = 3;
    layer.tp_rank = rank;
    host tested({layer});
    for (std::uint64_t seed = 1; seed < 3; ++seed) {
      const auto all = random_checkpoint(tested.layers(), seed);
      tested.reload(all);
      CHECK(tested.difference(all) == "");
    }
  }
}

TEST_CASE("vllm-gguf-plugin#103: rank r gets rows [r * s, (r + 1) * s)") {
  std::vector<std::uint16_t> rows(8);
  for (std::size_t i = 0; i < 8; ++i) rows[i] = static_cast<std::uint16_t>(i);
  for (int rank = 0; rank < 4; ++rank) {
    reference::layer layer = plain("w", {8});
    layer.shards[0].split = cut::column;
    layer.tp_size = 4;
    layer.tp_rank = rank;
    host tested({layer});
    tested.reload({{"w", tensor_of(dtype::bf16, {8}, rows)}});
    const auto first = static_cast<std::uint16_t>(2 * rank);
    CHECK(tested.dense("w") ==
          tensor_of(dtype::bf16, {2}, std::vector<std::uint16_t>{first, static_cast<std::uint16_t>(first + 1)}).bytes);
  }
}

TEST_CASE("vllm#52997: one scale row per started block of each shard, never two shards on one row") {
  struct partition {
    std::vector<std::int64_t> rows;
    std::int64_t scale_rows;
  };
  for (const partition& each : {partition{{192, 192}, 4}, partition{{64, 64, 64, 64}, 4}, partition{{384, 64, 64}, 5},
                                partition{{192, 128}, 3}, partition{{64, 128}, 2}, partition{{192, 192, 192}, 6}}) {
    reference::layer layer = linear("fused", {}, 130, 128, 128);
    for (std::size_t i = 0; i < each.rows.size(); ++i)
      layer.shards.push_back(whole_shard("m" + std::to_string(i), each.rows[i]));
    status refused;
    CHECK(storage_plan<Fp8DequantLinear>("fused", extents_of(layer), &refused)[1].rows == each.scale_rows);
    host tested({layer});
    const auto all = random_checkpoint(tested.layers(), 1);
    tested.reload(all);
    CHECK(tested.difference(all) == "");
  }
}

TEST_CASE("TRT-Model-Connect#1115: 1000 rows with 8 scale rows are blocks of 128, not of 125") {
  host tested({linear("w", {whole_shard("w", 1000)}, 3, 128, 128)});
  const auto all = random_checkpoint(tested.layers(), 1);
  CHECK(all.at("w.weight_scale_inv").sizes == reference::dims{8, 1});
  tested.reload(all);
  CHECK(tested.difference(all) == "");
}

TEST_CASE("ScaleLLM#213: two KV heads over four ranks are 0, 0, 1, 1") {
  for (int rank = 0; rank < 4; ++rank) {
    reference::layer layer = plain("kv", {2});
    layer.shards[0].split = cut::column;
    layer.shards[0].parts = 2;
    layer.tp_size = 4;
    layer.tp_rank = rank;
    host tested({layer});
    tested.reload({{"kv", tensor_of(dtype::bf16, {2}, std::vector<std::uint16_t>{100, 200})}});
    CHECK(tested.dense("kv") == halves(1, rank < 2 ? 100 : 200).bytes);
  }
}

TEST_CASE("vllm#51130, sglang#22787: each of two ranks takes its 16 of 32 experts; the rest is not needed") {
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    std::vector<std::int64_t> local;
    for (std::int64_t i = 0; i < 16; ++i) local.push_back(rank * 16 + i);
    host tested({experts(32, local)});
    const auto all = random_checkpoint(tested.layers(), 1);
    CHECK(all.size() == 32 * 6);
    auto open = tested.start();
    must(tested.send(open, all));
    CHECK(open.report().not_needed.tensors == 16 * 6);
    must(open.finish());
    CHECK(tested.difference(all) == "");
  }
  host none({experts(32, {}), plain("norm", {2})});  // a rank without experts still works
  const auto all = random_checkpoint(none.layers(), 1);
  none.reload(all);
  CHECK(none.difference(all) == "");
}

TEST_CASE("prime-rl#3583: every physical copy of an expert is what was sent for it") {
  host tested({experts(4, {3, 0, 3, 1, 3})});
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  reference::checkpoint third;
  for (const auto& [name, value] : b)
    if (name.starts_with("experts.3.")) third[name] = value;
  tested.reload_partial(third);
  CHECK(tested.difference(reference::overlay(a, third)) == "");
}

TEST_CASE("sglang#2322: files of a larger model of the family are refused on the first shape, nothing written") {
  host small({linear("q", 8, 6), plain("norm", {6})});
  host large({linear("q", 16, 12), plain("norm", {12})});
  const auto right = random_checkpoint(small.layers(), 1);
  const auto wrong = random_checkpoint(large.layers(), 1);
  small.reload(right);
  const auto before = small.image();
  auto open = small.start();
  for (const auto& [name, value] : wrong) check_refused(load(small, open, name, value), error_code::wrong_shape, name);
  CHECK(!open.finish().ok());
  must(open.abort());
  CHECK(small.model().state() == model_state::live);
  CHECK(before == small.image());
}

TEST_CASE("TensorRT-LLM#16642, tokenspeed#672, vllm#39212: a bucket fails; no publish, and a full retry works") {
  host tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  {
    auto open = tested.start();
    must(tested.send(open, b, "q.weight"));
    check_refused(load(tested, open, "kv.weight", b.at("q.weight")), error_code::wrong_shape, "kv.weight");
    check_refused(open.finish(), error_code::incomplete);
    CHECK(tested.model().version() == 1);
  }
  CHECK(tested.model().state() == model_state::undefined);
  tested.reload(b);
  CHECK(tested.model().version() == 2);
  CHECK(tested.difference(b) == "");
}

TEST_CASE("NeMo-RL#2418, sglang#39535, vllm#57130: transposed, strided, 0-dim and empty views land exactly") {
  host tested({plain("vector", {3}, dtype::fp32), plain("matrix", {3, 4}, dtype::i32), plain("scalar", {}, dtype::u8),
               plain("empty", {0}, dtype::bf16), plain("index", {2}, dtype::i64),
               plain("wide", {2, 3}, dtype::fp32, {dtype::bf16})});
  const std::vector<float> apart = {1, 9, 2, 9, 3};
  const std::vector<std::int32_t> by_column = {0, 10, 20, 1, 11, 21, 2, 12, 22, 3, 13, 23};
  const std::vector<std::int64_t> every_second = {0, 1, 2, 3};
  const std::vector<std::uint16_t> wide_by_column = {0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0};
  const std::uint8_t one = 7;
  auto open = tested.start();
  must(open.load("vector", {.data = apart.data(), .type = dtype::fp32, .extents = {3}, .strides = {2}}));
  must(open.load("matrix", {.data = by_column.data(), .type = dtype::i32, .extents = {3, 4}, .strides = {1, 3}}));
  must(open.load("scalar", {.data = &one, .type = dtype::u8}));
  must(open.load("empty", {.type = dtype::bf16, .extents = {0}}));
  must(open.load("index", {.data = every_second.data(), .type = dtype::i64, .extents = {2}, .strides = {2}}));
  must(open.load("wide", {.data = wide_by_column.data(), .type = dtype::bf16, .extents = {2, 3}, .strides = {1, 2}}));
  must(open.finish());
  CHECK(tested.dense("vector") == tensor_of(dtype::fp32, {3}, std::vector<float>{1, 2, 3}).bytes);
  CHECK(tested.dense("matrix") ==
        tensor_of(dtype::i32, {12}, std::vector<std::int32_t>{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}).bytes);
  CHECK(tested.dense("index") == tensor_of(dtype::i64, {2}, std::vector<std::int64_t>{0, 2}).bytes);
  CHECK(tested.dense("wide") == tensor_of(dtype::fp32, {6}, std::vector<float>{1, 3, 5, 2, 4, 6}).bytes);
  // Backwards, and one value for all.
  auto again = tested.start();
  must(again.load("vector", {.data = apart.data() + 4, .type = dtype::fp32, .extents = {3}, .strides = {-2}}));
  must(again.load("matrix", {.data = by_column.data() + 1, .type = dtype::i32, .extents = {3, 4}, .strides = {0, 0}}));
  must(again.load("scalar", {.data = &one, .type = dtype::u8}));
  must(again.load("index", {.data = every_second.data(), .type = dtype::i64, .extents = {2}}));
  must(again.load("wide", {.data = wide_by_column.data(), .type = dtype::bf16, .extents = {2, 3}}));
  must(again.finish());
  CHECK(tested.dense("vector") == tensor_of(dtype::fp32, {3}, std::vector<float>{3, 2, 1}).bytes);
  CHECK(tested.dense("matrix") == tensor_of(dtype::i32, {12}, std::vector<std::int32_t>(12, 10)).bytes);
}

TEST_CASE("SkyRL#1816, vllm#57665: names and bytes stay together in a packed buffer, at any offset") {
  host tested({plain("a", {3}, dtype::fp16), plain("b", {1}, dtype::fp32), plain("c", {2}), linear("w", 3, 5)});
  auto all = random_checkpoint(tested.layers(), 1);
  for (const std::size_t shift : {0U, 1U, 3U}) {
    std::vector<std::byte> buffer(shift);
    std::map<std::string, std::size_t> at;
    for (const bool wide : {false, true})  // grouped by dtype, as the sender likes it
      for (const auto& [name, value] : all)
        if ((value.type == dtype::fp32) == wide) {
          at[name] = buffer.size();
          buffer.insert(buffer.end(), value.bytes.begin(), value.bytes.end());
        }
    auto open = tested.start();
    std::vector<piece> batch;
    for (const auto& [name, value] : all)
      batch.push_back(
          {.name = name,
           .tensor = {.data = buffer.data() + at.at(name), .type = value.type, .extents = shape_of(value.sizes)}});
    must(open.load(batch));
    must(open.finish());
    CHECK(tested.difference(all) == "");
  }
}

TEST_CASE("Liger#1296: offsets beyond 2^32 elements") {
  // 512 experts of 2048 x 4096 as one tensor, 8 GiB of address space of which a few pages are ever touched.
  const std::int64_t rows = 512 * 2048, cols = 4096;
  const std::size_t bytes = static_cast<std::size_t>(rows * cols) * 2;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    MESSAGE("8 GiB of address space could not be had: skipped");
    return;
  }
  {
    model<host_executor> huge;
    must(huge.add<Plain>("experts", extents::tensor("experts", {rows, cols}, dtype::bf16), memory));
    must(huge.seal());
    status refused;
    auto open = huge.start({}, &refused);
    must(refused);
    const auto values = halves(cols, 0x1234);
    const shape whole{rows, cols};
    for (const std::int64_t row : {std::int64_t{0}, 256 * std::int64_t{2048}, rows - 1}) {
      must(open.load("experts", {.data = values.bytes.data(), .type = dtype::bf16, .extents = {1, cols}},
                     box::rows(whole, row, row + 1)));
      const auto* found = static_cast<const std::byte*>(memory) + static_cast<std::size_t>(row * cols) * 2;
      CHECK(std::memcmp(found, values.bytes.data(), values.bytes.size()) == 0);
    }
    check_refused(open.finish(), error_code::incomplete, "experts");
    direct_landing where;
    must(open.landing("experts", box::rows(whole, rows - 2, rows - 1), dtype::bf16, &where));
    CHECK((where.data == static_cast<std::byte*>(memory) + static_cast<std::size_t>((rows - 2) * cols) * 2));
  }
  munmap(memory, bytes);
}

}  // namespace wreload::test
