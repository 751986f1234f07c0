#include "replay_suite.hpp"

namespace wreload::test {
using host_planning = planning_executor<host_executor>;
TEST_CASE_TEMPLATE_INVOKE(replay_cold_equal, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_differences, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_outside, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_manifest, host_planning);
}  // namespace wreload::test
