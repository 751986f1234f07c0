#include "replay_mixed_suite.hpp"
#include "replay_suite.hpp"

namespace wreload::test {
using host_planning = planning_executor<host_executor>;
using device_planning = planning_executor<device_like_executor>;
TEST_CASE_TEMPLATE_INVOKE(replay_cold_equal, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_differences, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_fused, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_pageable, device_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_once, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_outside, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_manifest, host_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_mixed, host_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_runtime, host_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_dropped, host_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_injected, host_executor);
}  // namespace wreload::test
