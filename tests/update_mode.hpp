#pragma once
/// Which mode the suites run their updates in: WRELOAD_TEST_MODE, one of direct (the default), layerwise, staged, swap.
/// Meson runs the suites of laws once in each.

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include <wreload/update/options.hpp>

namespace wreload::test {

inline update_mode mode_under_test() {
  static const update_mode mode = [] {
    const char* given = std::getenv("WRELOAD_TEST_MODE");
    const std::string_view wanted = given == nullptr ? "direct" : given;
    for (const update_mode each :
         {update_mode::direct, update_mode::layerwise, update_mode::staged, update_mode::swap})
      if (name_of(each) == wanted) return each;
    throw std::runtime_error("WRELOAD_TEST_MODE: no mode " + std::string(wanted));
  }();
  return mode;
}

/// Whether an open update of the mode under test has live storage to itself from `start` on.
inline bool owns_at_once() {
  return mode_under_test() == update_mode::direct || mode_under_test() == update_mode::layerwise;
}

/// The options with the mode under test, where they do not ask for one.
inline start_options in_mode_under_test(start_options options) {
  if (options.mode != update_mode::direct) return options;
  options.mode = mode_under_test();
  const bool keeps_aside = options.mode == update_mode::layerwise || options.mode == update_mode::staged;
  if (keeps_aside && options.staging.lent.empty() && options.staging.budget_bytes == 0)
    options.staging.budget_bytes = staging_memory::no_limit;
  return options;
}

}  // namespace wreload::test
