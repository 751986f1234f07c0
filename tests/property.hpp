#pragma once
/// RapidCheck properties inside doctest cases.
///
///     TEST_CASE("ceil_div") {
///       wreload::test::property("rounds up", [] {
///         const auto n = *rc::gen::inRange<std::int64_t>(0, 1000);
///         RC_ASSERT(wreload::ceil_div(n, 7) * 7 >= n);
///       });
///     }
///
/// A property that fails, throws, or gives up fails its doctest case once and prints the shrunk counterexample with the
/// seed. Inside one use RC_ASSERT, RC_PRE, RC_FAIL; doctest's own CHECK there would count every shrink step.
/// RC_PARAMS from the environment holds: RC_PARAMS="seed=42 max_success=1000" ./tests_core.

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <exception>
#include <sstream>
#include <string>
#include <utility>

namespace wreload::test {

/// Runs `holds` over RapidCheck's random cases; true if it held for all.
template <class Property>
bool property(const std::string& text, Property&& holds) {
  std::ostringstream told;
  bool passed = false;
  try {
    rc::detail::TestMetadata metadata;
    metadata.id = text;
    metadata.description = text;
    const auto result = rc::detail::checkTestable(std::forward<Property>(holds), metadata);
    passed = result.template is<rc::detail::SuccessResult>();
    rc::detail::printResultMessage(result, told);
  } catch (const std::exception& error) {
    told << "threw outside its cases: " << error.what();
  } catch (...) {
    told << "threw outside its cases";
  }
  CHECK_MESSAGE(passed, text << "\n" << told.str());
  return passed;
}

}  // namespace wreload::test
