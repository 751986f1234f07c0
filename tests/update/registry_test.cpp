// registry: params, sources and landings of a whole model; what cannot live together is refused by name.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layouts/fp8_dequant_linear.hpp>
#include <wreload/layouts/fp8_dequant_moe.hpp>
#include <wreload/layouts/plain.hpp>
#include <wreload/update/registry.hpp>

#include "registry_rig.hpp"

namespace wr = wreload;
using registry_tests::check_refused;
using registry_tests::rig;

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

TEST_CASE("one storage per param") {
  rig model;
  wr::layer_plan plan = model.plan(wr::Fp8DequantLinear::specs, "o", wr::extents::matrix("o", 4, 4));
  const wr::storage one(model.block(64));
  check_refused(model.records.add(std::move(plan), std::span(&one, 1)), wr::error_code::bad_argument,
                "o: expected 2 storages, got 1");
}

TEST_CASE("a twin has landings of its own on the first name's bytes") {
  rig model;
  REQUIRE(model.add_matrix("embed", "embed.weight", 4, 4).ok());
  REQUIRE(model.add_matrix("copy", "embed.weight", 4, 4).ok());
  model.records.add_twin("embed.weight", "lm_head.weight");
  REQUIRE(model.records.index().ok());
  const wr::registry& records = model.records;
  const std::int32_t second = records.names.find("lm_head.weight");
  REQUIRE(second != wr::no_index);
  const wr::source_record& twin = wr::at(records.sources, records.names[second].source);
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
  const std::int32_t absent = model.records.names.find("experts.2.down_proj.weight");
  REQUIRE(absent != wr::no_index);
  const wr::source_record& source = wr::at(model.records.sources, model.records.names[absent].source);
  CHECK(source.landings.empty());
  CHECK(source.extents == wr::shape{8, 4});
}
