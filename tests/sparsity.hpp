#pragma once
/// How many of their cases suites of many run.

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace wreload::test {

/// Every n-th where WRELOAD_TEST_SPARSE=n says so (under a sanitizer), else each.
inline std::int64_t test_sparsity() {
  static const std::int64_t every = [] {
    const char* given = std::getenv("WRELOAD_TEST_SPARSE");
    return given == nullptr ? std::int64_t{1} : std::max<std::int64_t>(1, std::strtoll(given, nullptr, 10));
  }();
  return every;
}

}  // namespace wreload::test
