// index_list: against a vector.
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/core/index_list.hpp>

#include "../property.hpp"

namespace wr = wreload;

TEST_CASE("holds what was put in, also copied, moved and assigned") {
  wr::test::property("as a vector", [] {
    const auto put = *rc::gen::arbitrary<std::vector<std::int32_t>>();
    const auto equals = [&](const wr::index_list& list) {
      RC_ASSERT(list.size() == put.size());
      RC_ASSERT(list.empty() == put.empty());
      RC_ASSERT(std::vector<std::int32_t>(list.begin(), list.end()) == put);
      for (std::size_t i = 0; i < put.size(); ++i) RC_ASSERT(list[i] == put[i]);
    };
    wr::index_list list;
    for (const std::int32_t entry : put) list.push_back(entry);
    equals(list);
    wr::index_list copy = list;
    equals(copy);
    wr::index_list moved = std::move(copy);
    equals(moved);
    wr::index_list other;
    for (int i = 0; i < *rc::gen::inRange(0, 6); ++i) other.push_back(-i);
    other = moved;
    equals(other);
    moved.push_back(7);  // its own entries
    equals(other);
    equals(list);
    other = std::move(list);
    equals(other);
  });
}
