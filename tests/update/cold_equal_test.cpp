#include "cold_equal_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(cold_equal_complete, host_executor);
TEST_CASE_TEMPLATE_INVOKE(cold_equal_partial, host_executor);
TEST_CASE_TEMPLATE_INVOKE(cold_equal_retract, host_executor);
TEST_CASE_TEMPLATE_INVOKE(cold_equal_runtime, host_executor);
}  // namespace wreload::test
