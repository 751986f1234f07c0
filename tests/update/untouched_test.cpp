#include "untouched_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(untouched_partial, host_executor);
TEST_CASE_TEMPLATE_INVOKE(untouched_pads, host_executor);
TEST_CASE_TEMPLATE_INVOKE(untouched_shards, host_executor);
TEST_CASE_TEMPLATE_INVOKE(untouched_half_row, host_executor);
TEST_CASE_TEMPLATE_INVOKE(once_twice, host_executor);
TEST_CASE_TEMPLATE_INVOKE(once_work, host_executor);
TEST_CASE_TEMPLATE_INVOKE(once_duplicates, host_executor);
TEST_CASE_TEMPLATE_INVOKE(once_retract, host_executor);
}  // namespace wreload::test
