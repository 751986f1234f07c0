// Name patterns of `ignore` and `foreign`.
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <wreload/update/pattern.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

/// By definition: `*` is any prefix of what is left.
bool plainly(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*') return !name.empty() && pattern[0] == name[0] && plainly(pattern.substr(1), name.substr(1));
  for (std::size_t taken = 0; taken <= name.size(); ++taken)
    if (plainly(pattern.substr(1), name.substr(taken))) return true;
  return false;
}

std::string word(const std::string& letters, int longest) {
  std::string text;
  const auto length = *rc::gen::inRange(0, longest + 1);
  for (int i = 0; i < length; ++i) text += *rc::gen::elementOf(letters);
  return text;
}

}  // namespace

// A dot is a dot: vision towers and gates have look-alikes.
static_assert(!wr::matches("mlp.gate.*", "mlp.gate_proj.weight") && wr::matches("mlp.gate.*", "mlp.gate.weight"));
static_assert(wr::matches("model.layers.45.*", "model.layers.45.mlp.experts.3.up_proj.weight"));
static_assert(!wr::matches("model.layers.4.*", "model.layers.45.mlp.gate.weight"));
static_assert(wr::matches("*.experts.*.weight", "a.experts.3.up_proj.weight"));
static_assert(wr::matches("*", "") && wr::matches("", "") && !wr::matches("", "a") && !wr::matches("a", ""));
static_assert(wr::matches("a", "a") && !wr::matches("a", "ab") && !wr::matches("b", "ab"));
static_assert(!wr::matches("?", "a") && wr::matches("?", "?") && wr::matches("[ab]", "[ab]"));  // no other wildcards

TEST_CASE("matches what the definition matches") {
  property("against the plain recursion", [] {
    const std::string pattern = word("ab.*", 8), name = word("ab.", 10);
    RC_ASSERT(wr::matches(pattern, name) == plainly(pattern, name));
  });
}

TEST_CASE("many stars do not take exponential time") {
  std::string pattern, name(5000, 'a');
  for (int i = 0; i < 200; ++i) pattern += "a*";
  CHECK_FALSE(wr::matches(pattern + "b", name));
  CHECK(wr::matches(pattern, name));
}
