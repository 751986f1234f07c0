// registry: params, sources and landings of a whole model; what cannot live together is refused by name.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layouts/fp8_dequant_linear.hpp>
#include <wreload/layouts/fp8_dequant_moe.hpp>
#include <wreload/layouts/plain.hpp>
#include <wreload/update/registry.hpp>

namespace wr = wreload;

namespace {

/// A registry and plenty of memory for what is added to it.
struct rig {
  wr::registry records = {};
  std::vector<std::unique_ptr<std::byte[]>> blocks = {};

  std::byte* block(std::int64_t bytes) {
    blocks.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes)));
    return blocks.back().get();
  }

  wr::layer_plan plan(std::span<const wr::param_spec> specs, const std::string& name, const wr::extents& sizes) {
    wr::layer_plan plan;
    const wr::status error = wr::plan_layer(specs, name, sizes, plan);
    REQUIRE_MESSAGE(error.ok(), error.message());
    return plan;
  }

  wr::status add(std::span<const wr::param_spec> specs, const std::string& name, const wr::extents& sizes) {
    wr::layer_plan planned = plan(specs, name, sizes);
    std::vector<wr::storage> memory;
    for (const wr::planned_param& param : planned.params) memory.emplace_back(block(param.bytes()));
    return records.add(std::move(planned), memory);
  }

  /// A bf16 matrix under `name` that reads the checkpoint tensor `tensor`.
  wr::status add_matrix(const std::string& name, const std::string& tensor, std::int64_t rows, std::int64_t cols,
                        wr::storage memory) {
    wr::layer_plan planned = plan(wr::Plain::specs, name, wr::extents::tensor(tensor, {rows, cols}, wr::dtype::bf16));
    return records.add(std::move(planned), std::span(&memory, 1));
  }
  wr::status add_matrix(const std::string& name, const std::string& tensor, std::int64_t rows, std::int64_t cols) {
    return add_matrix(name, tensor, rows, cols, block(rows * cols * 2));
  }
};

void check_refused(const wr::status& error, wr::error_code code, const std::string& message) {
  CHECK(error.code == code);
  CHECK(error.message() == message);
  CHECK_FALSE(error.wrote_anything);
}

}  // namespace

TEST_CASE("params, sources and landings refer to each other by index") {
  rig model;
  REQUIRE(model.add_matrix("norm.weight", "norm.weight", 4, 1).ok());  // so that no index is its own offset
  REQUIRE(model.add(wr::Fp8DequantLinear::specs, "fused",
                    {.shards = {{.module = "q", .rows = 130}, {.module = "k", .rows = 64}}, .inner = {200}}).ok());
  REQUIRE(model.records.index().ok());
  const wr::registry& records = model.records;
  REQUIRE(records.params.size() == 3);
  REQUIRE(records.landings.size() == 5);
  CHECK(records.sources.size() == 5);
  const std::int32_t weight = records.find_param("fused.weight");
  const std::int32_t scale = records.find_param("fused.weight_scale_inv");
  REQUIRE(weight == 1);
  REQUIRE(scale == 2);
  CHECK(records.find_param("fused") == wr::no_index);
  CHECK(wr::at(records.params, weight).first_landing == 1);
  CHECK(wr::at(records.params, weight).landing_count == 2);
  for (std::int32_t l = 1; l < 3; ++l) {
    const wr::landing_record& landing = wr::at(records.landings, l);
    CHECK(landing.param == weight);
    CHECK(landing.scale == l + 2);
    CHECK(landing.weight == wr::no_index);
    CHECK(wr::at(records.landings, landing.scale).weight == l);
    CHECK(wr::at(records.landings, landing.scale).param == scale);
    const wr::index_list& own = wr::at(records.sources, landing.source).landings;
    REQUIRE(own.size() == 1);
    CHECK(own[0] == l);
  }
  CHECK(wr::at(records.landings, 2).local() == wr::rect{130, 194, 0, 200});
  CHECK(wr::at(records.params, weight).row_stride_bytes == 400);
}

TEST_CASE("each spelling is a name of its own for one source") {
  rig model;
  REQUIRE(model.add(wr::Fp8DequantLinear::specs, "o", wr::extents::matrix("o", 4, 4)).ok());
  REQUIRE(model.records.index().ok());
  const std::int32_t first = model.records.find_name("o.weight_scale_inv");
  const std::int32_t second = model.records.find_name("o.weight_scale");
  REQUIRE(first != wr::no_index);
  REQUIRE(second != wr::no_index);
  CHECK(first != second);
  const wr::name_record a = wr::at(model.records.names, first), b = wr::at(model.records.names, second);
  CHECK(a.source == b.source);
  CHECK(model.records.spelling(a) == "o.weight_scale_inv");
  CHECK(model.records.spelling(b) == "o.weight_scale");
  CHECK(model.records.find_name("o") == wr::no_index);
  CHECK(model.records.find_name("o.weight_scale_in") == wr::no_index);
}

TEST_CASE("two layers may read one tensor: one source, both landings, what both accept") {
  rig model;
  REQUIRE(model.add_matrix("a", "embed.weight", 4, 4).ok());
  wr::extents wide = wr::extents::tensor("embed.weight", {4, 4}, wr::dtype::fp32);
  wide.accepts = wr::dtype::bf16;
  REQUIRE(model.add(wr::Plain::specs, "b", wide).ok());
  REQUIRE(model.records.index().ok());
  REQUIRE(model.records.sources.size() == 1);
  CHECK(model.records.sources[0].landings.size() == 2);
  CHECK(model.records.sources[0].accepted == wr::dtype_set(wr::dtype::bf16));  // fp32 would lose bits in a
}

TEST_CASE("a layer whose tensor has another shape elsewhere is refused, and nothing of it stays") {
  rig model;
  REQUIRE(model.add_matrix("a", "embed.weight", 4, 4).ok());
  check_refused(model.add_matrix("b", "embed.weight", 4, 5), wr::error_code::bad_layout,
                "embed.weight: expected [4, 4] as another layer reads it, got [4, 5]");
  CHECK(model.records.params.size() == 1);
  CHECK(model.records.landings.size() == 1);
  CHECK(model.records.find_param("b") == wr::no_index);
  CHECK(model.add_matrix("b", "embed.weight", 4, 4).ok());
}

TEST_CASE("a runtime name belongs to one param") {
  rig model;
  REQUIRE(model.add_matrix("a", "x", 4, 4).ok());
  check_refused(model.add_matrix("a", "y", 4, 4), wr::error_code::bad_layout,
                "a: expected a name of its own, got a second param of that name");
}

TEST_CASE("null pointers are refused, but for params of no bytes") {
  rig model;
  check_refused(model.add_matrix("a", "a", 4, 4, nullptr), wr::error_code::bad_argument,
                "a: expected 32 bytes, got a null pointer");
  CHECK(model.add_matrix("b", "b", 0, 4, nullptr).ok());
  CHECK(model.add_matrix("c", "c", 4, 0, nullptr).ok());
  CHECK(model.records.index().ok());
}

TEST_CASE("one storage per param") {
  rig model;
  wr::layer_plan plan = model.plan(wr::Fp8DequantLinear::specs, "o", wr::extents::matrix("o", 4, 4));
  const wr::storage one(model.block(64));
  check_refused(model.records.add(std::move(plan), std::span(&one, 1)), wr::error_code::bad_argument,
                "o: expected 2 storages, got 1");
}

TEST_CASE("a row stride is at least a row") {
  rig model;
  std::byte* data = model.block(4 * 16);
  check_refused(model.add_matrix("a", "a", 4, 4, {data, 7}), wr::error_code::bad_argument,
                "a: expected a row stride of at least 8 bytes, got 7");
  check_refused(model.add_matrix("a", "a", 4, 4, {data, -8}), wr::error_code::bad_argument,
                "a: expected a row stride of at least 8 bytes, got -8");
  CHECK(model.add_matrix("a", "a", 4, 4, {data, 16}).ok());
  CHECK(model.records.params[0].row(3) == data + 48);
}

TEST_CASE("params that share bytes are refused") {
  struct placement {
    std::int64_t offset;
    std::int64_t stride;
    bool apart;
  };
  // Beside a bf16 matrix [4, 4] (8 bytes a row) at offset 64 with rows of 32 bytes: bytes 64..72, 96..104, 128..136, 160..168.
  const placement placements[] = {
      {64, 32, false},   // the same bytes
      {66, 32, false},   // partly
      {60, 32, false},   // its rows end inside the other's
      {70, 32, false},   // its rows begin inside
      {72, 32, true},    // between the other's rows
      {88, 32, true},    // up to the next row
      {90, 32, false},   // into the next row
      {56, 32, true},    // before
      {32, 8, true},     // dense, ends where the other begins
      {34, 8, false},    // dense, one element further
      {166, 32, false},  // begins in the last element
      {168, 32, true},   // behind
      {168, 8, true},
      {40, 32, true},    // first row before the other's, the rest between its rows
      {96, 32, false},   // shifted by one row
      {104, 32, true},   // shifted by one row and a gap
      {64, 8, false},
  };
  for (const placement& known : placements) {
    CAPTURE(known.offset);
    CAPTURE(known.stride);
    for (const bool swapped : {false, true}) {
      rig model;
      std::byte* data = model.block(512);
      const wr::storage first{data + 64, 32}, second{data + known.offset, known.stride};
      REQUIRE(model.add_matrix("a", "a", 4, 4, swapped ? second : first).ok());
      REQUIRE(model.add_matrix("b", "b", 4, 4, swapped ? first : second).ok());
      const wr::status error = model.records.index();
      CHECK(error.ok() == known.apart);
      if (known.apart) continue;
      CHECK(error.code == wr::error_code::bad_layout);
      CHECK((error.param == "a" || error.param == "b"));
      CHECK(error.expected == "bytes of its own (or same_as)");
      CHECK((error.got == "bytes of a" || error.got == "bytes of b"));
      CHECK(error.got != "bytes of " + error.param);
    }
  }
}

TEST_CASE("three params interleave, and a long one before many short ones is not forgotten") {
  rig model;
  std::byte* data = model.block(1024);
  for (const int i : {0, 1, 2})
    REQUIRE(model.add_matrix(std::string(1, static_cast<char>('a' + i)), std::string(1, static_cast<char>('a' + i)), 4, 4, {data + 8 * i, 24}).ok());
  CHECK(model.records.index().ok());

  rig other;
  data = other.block(1024);
  REQUIRE(other.add_matrix("long", "long", 16, 4, {data, 32}).ok());
  REQUIRE(other.add_matrix("gap", "gap", 2, 4, {data + 8, 32}).ok());
  REQUIRE(other.add_matrix("inside", "inside", 1, 4, {data + 320, 32}).ok());
  CHECK_FALSE(other.records.index().ok());
}

TEST_CASE("a spelling that is another layer's tensor is refused by that name") {
  rig model;
  REQUIRE(model.add(wr::Fp8DequantLinear::specs, "o", wr::extents::matrix("o", 4, 4)).ok());
  REQUIRE(model.add_matrix("s", "o.weight_scale", 1, 1).ok());
  const wr::status error = model.records.index();
  CHECK(error.code == wr::error_code::bad_layout);
  CHECK(error.param == "o.weight_scale");
}

TEST_CASE("a twin has landings of its own on the first name's bytes") {
  rig model;
  REQUIRE(model.add_matrix("embed", "embed.weight", 4, 4).ok());
  REQUIRE(model.add_matrix("copy", "embed.weight", 4, 4).ok());
  model.records.add_twin("embed.weight", "lm_head.weight");
  REQUIRE(model.records.index().ok());
  const wr::registry& records = model.records;
  const std::int32_t second = records.find_name("lm_head.weight");
  REQUIRE(second != wr::no_index);
  const wr::source_record& twin = wr::at(records.sources, wr::at(records.names, second).source);
  CHECK(twin.extents == wr::shape{4, 4});
  CHECK(twin.accepted == wr::dtype_set(wr::dtype::bf16));
  REQUIRE(twin.landings.size() == 2);
  REQUIRE(records.twin_groups.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const wr::landing_record& copy = wr::at(records.landings, twin.landings[i]);
    const wr::landing_record& first = wr::at(records.landings, records.sources[0].landings[i]);
    CHECK(copy.param == first.param);
    CHECK(copy.needed == first.needed);
    CHECK(copy.twins == first.twins);
    CHECK(records.twin_groups[i] == std::vector<std::int32_t>{records.sources[0].landings[i], twin.landings[i]});
  }
}

TEST_CASE("a third name joins the group of the first two") {
  rig model;
  REQUIRE(model.add_matrix("embed", "embed.weight", 4, 4).ok());
  model.records.add_twin("embed.weight", "lm_head.weight");
  model.records.add_twin("lm_head.weight", "mtp.head.weight");
  REQUIRE(model.records.index().ok());
  REQUIRE(model.records.twin_groups.size() == 1);
  CHECK(model.records.twin_groups[0].size() == 3);
}

TEST_CASE("twins that cannot be are refused by name") {
  rig unknown;
  REQUIRE(unknown.add_matrix("a", "a", 4, 4).ok());
  unknown.records.add_twin("embed.weight", "lm_head.weight");
  check_refused(unknown.records.index(), wr::error_code::unknown_name,
                "embed.weight: expected a checkpoint tensor of the model, got none of that name");

  rig taken;
  REQUIRE(taken.add_matrix("a", "a", 4, 4).ok());
  REQUIRE(taken.add_matrix("b", "b", 4, 4).ok());
  taken.records.add_twin("a", "b");
  check_refused(taken.records.index(), wr::error_code::bad_layout,
                "b: expected a name that has no storage of its own, got a tensor of the model");

  rig twice;
  REQUIRE(twice.add_matrix("a", "a", 4, 4).ok());
  twice.records.add_twin("a", "second");
  twice.records.add_twin("a", "second");
  CHECK_FALSE(twice.records.index().ok());

  rig itself;
  REQUIRE(itself.add_matrix("a", "a", 4, 4).ok());
  itself.records.add_twin("a", "a");
  CHECK_FALSE(itself.records.index().ok());
}

TEST_CASE("experts that other ranks hold are known by name and shape, with no landing") {
  rig model;
  wr::extents sizes{.shards = {{.module = "gate_proj", .rows = 4}, {.module = "up_proj", .rows = 4}, {.module = "down_proj", .rows = 8, .cols = 4}},
                    .inner = {8},
                    .experts = wr::expert_slots{3, {1}}};
  REQUIRE(model.add(wr::Fp8DequantMoe::specs, "experts", sizes).ok());
  REQUIRE(model.records.index().ok());
  const std::int32_t absent = model.records.find_name("experts.2.down_proj.weight");
  REQUIRE(absent != wr::no_index);
  const wr::source_record& source = wr::at(model.records.sources, wr::at(model.records.names, absent).source);
  CHECK(source.landings.empty());
  CHECK(source.extents == wr::shape{8, 4});
}

TEST_CASE("storage of 10,000 params is checked in no time") {
  rig model;
  std::byte* data = model.block(10000 * 32);
  for (std::int64_t i = 0; i < 10000; ++i) {
    const std::string name = "layer" + std::to_string((i * 7919) % 10000);
    REQUIRE(model.add_matrix(name, name, 4, 4, data + (i * 7919) % 10000 * 32).ok());
  }
  CHECK(model.records.index().ok());
}
