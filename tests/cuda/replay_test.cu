// Buckets that come again, on the device: the suites of tests/update.
#include "../update/replay_suite.hpp"
#include "../update/replay_mixed_suite.hpp"
#include "plan_room.cuh"
#include "test_device.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(replay_cold_equal, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_differences, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_outside, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_manifest, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_mixed, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_injected, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_dropped, cuda_executor);

}  // namespace wreload::test
