// Buckets that come again, on the device: the suites of tests/update.
#include "../update/replay_suite.hpp"
#include "../update/replay_mixed_suite.hpp"
#include "test_device.cuh"

namespace wreload::test {

template <>
struct plan_room<cuda_executor> {
  static std::tuple<cuda_options> options() { return {cuda_options{.window_bytes = 1 << 20, .plan_bytes = 4 << 20}}; }
};
using cuda_planning = planning_executor<cuda_executor>;

TEST_CASE_TEMPLATE_INVOKE(replay_cold_equal, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_differences, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_outside, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_manifest, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(replay_mixed, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_injected, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(replay_dropped, cuda_executor);

}  // namespace wreload::test
