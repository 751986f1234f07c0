#include "torn_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(torn_before_write, host_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_after_write, host_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_random, host_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_after_end, host_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_moved, host_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_execution, host_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_stages, host_executor);
}  // namespace wreload::test
