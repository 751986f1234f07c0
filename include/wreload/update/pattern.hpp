#pragma once
/// Name patterns for `ignore` and `foreign`.

#include <string_view>

namespace wreload {

/// Whether a whole name matches a pattern. `*` stands for any characters, dots included; everything else for itself:
/// `mlp.gate.*` does not match `mlp.gate_proj.weight`.
constexpr bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

static_assert(matches("*.weight", "a.b.weight") && !matches("mlp.gate.*", "mlp.gate_proj.weight"));

}  // namespace wreload
