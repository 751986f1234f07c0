// checkpoint_names: every spelling leads to its tensor, and no other.
#include <cstdint>

#include <doctest/doctest.h>

#include <wreload/layouts/fp8_dequant_linear.hpp>
#include <wreload/update/checkpoint_names.hpp>

#include "registry_rig.hpp"

namespace wr = wreload;
using registry_tests::rig;

TEST_CASE("each spelling is a name of its own for one source") {
  rig model;
  REQUIRE(model.add(wr::Fp8DequantLinear::specs, "o", wr::extents::matrix("o", 4, 4)).ok());
  REQUIRE(model.records.index().ok());
  const std::int32_t first = model.records.names.find("o.weight_scale_inv");
  const std::int32_t second = model.records.names.find("o.weight_scale");
  REQUIRE(first != wr::no_index);
  REQUIRE(second != wr::no_index);
  CHECK(first != second);
  const wr::name_record a = model.records.names[first], b = model.records.names[second];
  CHECK(a.source == b.source);
  CHECK(model.records.spelling(a) == "o.weight_scale_inv");
  CHECK(model.records.spelling(b) == "o.weight_scale");
  CHECK(model.records.names.find("o") == wr::no_index);
  CHECK(model.records.names.find("o.weight_scale_in") == wr::no_index);
}

TEST_CASE("a spelling that is another layer's tensor is refused by that name") {
  rig model;
  REQUIRE(model.add(wr::Fp8DequantLinear::specs, "o", wr::extents::matrix("o", 4, 4)).ok());
  REQUIRE(model.add_matrix("s", "o.weight_scale", 1, 1).ok());
  const wr::status error = model.records.index();
  CHECK(error.code == wr::error_code::bad_layout);
  CHECK(error.param == "o.weight_scale");
}
