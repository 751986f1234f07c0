// name_index and name_order: against a map, and what a repeated order costs.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/core/name_index.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

/// Names of all lengths that differ in one place, in front, in the middle or at the end; and one that is empty.
std::string name_of_number(std::int64_t number) {
  const std::string digits = number == 0 ? "" : std::to_string(number);
  const auto pad = [&](std::int64_t length) { return std::string(static_cast<std::size_t>(length), 'x'); };
  if (number % 3 == 0) return digits + pad(number / 3 % 40);
  if (number % 3 == 1) return pad(number / 3 % 40) + digits;
  return pad(number / 3 % 20) + digits + pad(number / 3 % 20 + 1);
}

std::vector<std::string> distinct_names(std::int64_t count) {
  std::map<std::string, int> known;
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i)
    if (known.emplace(name_of_number(i), 0).second) names.push_back(name_of_number(i));
  return names;
}

}  // namespace

TEST_CASE("finds each name that was added and no other") {
  property("as a map", [] {
    const auto names = distinct_names(*rc::gen::inRange<std::int64_t>(0, 600));
    const auto known = static_cast<std::size_t>(*rc::gen::inRange<std::int64_t>(0, static_cast<std::int64_t>(names.size()) + 1));
    const auto name_of = [&](std::int32_t id) -> std::string_view { return names[static_cast<std::size_t>(id)]; };
    wr::name_index index;
    for (std::size_t i = 0; i < known; ++i) {
      RC_ASSERT(index.find(names[i], name_of) == wr::name_index::none);
      index.add(names[i], static_cast<std::int32_t>(i));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::int32_t expected = i < known ? static_cast<std::int32_t>(i) : wr::name_index::none;
      const std::string elsewhere = "." + names[i];  // at another address and alignment
      const std::string_view same = std::string_view(elsewhere).substr(1);
      RC_ASSERT(index.find(same, name_of) == expected);
      RC_ASSERT(index.find(same, wr::name_index::hash_of(same), name_of) == expected);
    }
    index.clear();
    for (const std::string& name : names) RC_ASSERT(index.find(name, name_of) == wr::name_index::none);
  });
}

TEST_CASE("the names of a large model have few hashes in common") {
  std::map<std::uint32_t, int> hashes;
  int names = 0;
  for (int layer = 0; layer < 20; ++layer)
    for (int expert = 0; expert < 384; ++expert)
      for (const char* leaf : {"gate_proj.weight", "gate_proj.weight_scale", "up_proj.weight", "down_proj.input_scale"}) {
        ++hashes[wr::name_index::hash_of("model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(expert) + "." + leaf)];
        ++names;
      }
  CHECK(names - static_cast<int>(hashes.size()) < 5);  // of 30,720 in 2^32: 0.1 expected
  std::map<std::uint32_t, int> low;
  for (const auto& [hash, count] : hashes) low[hash & 0xFFFF] += count;
  CHECK(low.size() > 24'000);  // 24,525 expected of a random function
}

TEST_CASE("whatever the order says, the answer is the index's") {
  property("several senders, any names", [] {
    const auto names = distinct_names(40);
    const auto count = static_cast<std::int32_t>(names.size());
    const auto name_of = [&](std::int32_t id) -> std::string_view { return names[static_cast<std::size_t>(id)]; };
    wr::name_index index;
    for (std::int32_t i = 0; i < count; ++i) index.add(names[static_cast<std::size_t>(i)], i);
    wr::basic_name_order<> order;
    order.resize(names.size());
    wr::basic_name_order<>::cursor senders[3];
    const auto steps = *rc::gen::inRange(0, 200);
    for (int step = 0; step < steps; ++step) {
      auto& sender = senders[*rc::gen::inRange(0, 3)];
      const auto look_up = [&](std::string_view name) { return index.find(name, name_of); };
      const auto wanted = *rc::gen::inRange<std::int32_t>(-1, count);
      const bool is_next = *rc::gen::arbitrary<bool>();
      const std::int32_t id = is_next ? order.next(sender.last) : wanted;
      const std::string name = id < 0 ? "unknown" : names[static_cast<std::size_t>(id)];
      if (id >= 0 && *rc::gen::inRange(0, 4) == 0) order.follow(id, sender);
      else RC_ASSERT(order.find(name, sender, name_of, look_up) == id);
    }
  });
  wr::basic_name_order<> none;
  wr::basic_name_order<>::cursor from;
  const auto no_name = [](std::int32_t) { return std::string_view(); };
  CHECK(none.find("a", from, no_name, [](std::string_view) { return -1; }) == -1);
}

TEST_CASE("a sender in order is expected some names ahead") {
  wr::basic_name_order<> order;
  order.resize(20);
  wr::basic_name_order<>::cursor sender;
  CHECK(sender.expected(0) == -1);
  std::int32_t id = 0;
  const auto come = [&](std::int32_t next) {
    order.follow(id = next, sender);
    order.look_ahead(sender);
  };
  for (int i = 1; i <= 50; ++i) {
    come((id + 1) % 20);
    const std::uint32_t seen = std::min(i + 1, 8);
    for (std::uint32_t k = 0; k < 9; ++k)
      CHECK(sender.expected(k) == (k < seen ? (id + 1 + static_cast<std::int32_t>(k)) % 20 : -1));
  }
  come(3);  // a jump: what was expected is not
  CHECK(sender.expected(0) == 4);
  CHECK(sender.expected(1) == 5);
  CHECK(sender.expected(2) == -1);
}

TEST_CASE("an order that has been seen once is not looked up again") {
  const auto names = distinct_names(500);
  const auto count = static_cast<std::int32_t>(names.size());
  const auto name_of = [&](std::int32_t id) -> std::string_view { return names[static_cast<std::size_t>(id)]; };
  wr::name_index index;
  for (std::int32_t i = 0; i < count; ++i) index.add(names[static_cast<std::size_t>(i)], i);
  wr::basic_name_order<> order;
  order.resize(names.size());
  const auto pass = [&](std::int32_t step) {  // the names, `step` apart
    wr::basic_name_order<>::cursor sender;
    int looked_up = 0;
    for (std::int32_t i = 0, id = 0; i < count; ++i, id = (id + step) % count) {
      const auto look_up = [&](std::string_view name) { return ++looked_up, index.find(name, name_of); };
      CHECK(order.find(names[static_cast<std::size_t>(id)], sender, name_of, look_up) == id);
    }
    return looked_up;
  };
  CHECK(pass(1) < 5);
  std::int32_t step = 7;
  while (count % step == 0) step += 2;
  CHECK(pass(step) > count - 5);  // another order: guesses are wrong
  CHECK(pass(step) < 5);
}
