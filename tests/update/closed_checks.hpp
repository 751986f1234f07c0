#pragma once
/// What every refused `finish` has to look like.

#include "layout_engine.hpp"

namespace wreload::test {

/// A refused finish: nothing launched or written, the update open, and a report that lists the name (its message names
/// the first of them).
template <class Executor, class Tested>
void check_incomplete(Tested& tested, update<Executor>& open, std::string_view missing) {
  const std::int64_t launches = tested.model().executor().launches();
  check_refused(open.finish(), error_code::incomplete);
  CHECK(tested.model().executor().launches() == launches);
  CHECK(open.is_open());
  CHECK((tested.model().state() == model_state::updating) == owns_at_once());
  bool listed = false;
  for (const std::string& each : open.report().missing) listed |= each.starts_with(missing);
  CHECK_MESSAGE(listed, "the report does not list " << missing);
}

}  // namespace wreload::test
