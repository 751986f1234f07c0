// storage_checks: memory that cannot hold a param, or that two would share, is refused by name.
#include <cstddef>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <wreload/update/storage_checks.hpp>

#include "registry_rig.hpp"

namespace wr = wreload;
using registry_tests::check_refused;
using registry_tests::rig;

TEST_CASE("null pointers are refused, but for params of no bytes") {
  rig model;
  check_refused(model.add_matrix("a", "a", 4, 4, nullptr), wr::error_code::bad_argument,
                "a: expected 32 bytes, got a null pointer");
  CHECK(model.add_matrix("b", "b", 0, 4, nullptr).ok());
  CHECK(model.add_matrix("c", "c", 4, 0, nullptr).ok());
  CHECK(model.records.index().ok());
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

TEST_CASE("storage of 10,000 params is checked in no time") {
  rig model;
  std::byte* data = model.block(10000 * 32);
  for (std::int64_t i = 0; i < 10000; ++i) {
    const std::string name = "layer" + std::to_string((i * 7919) % 10000);
    REQUIRE(model.add_matrix(name, name, 4, 4, data + (i * 7919) % 10000 * 32).ok());
  }
  CHECK(model.records.index().ok());
}
