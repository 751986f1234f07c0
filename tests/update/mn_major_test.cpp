#include "mn_major_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(mn_major_worked, host_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_cold_equal, host_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_runtime, host_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_steps, host_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_twin, host_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_audit, host_executor);
}  // namespace wreload::test
