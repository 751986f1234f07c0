#include "closed_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(closed_each_missing, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_piece_missing, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_left_twice, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_old_scale, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_scale_alone, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_mixed_rows, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_scopes, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_lists, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_kept, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_kept_aborted, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_kept_retract, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_kept_twin, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_runtime, host_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_landing, host_executor);
}  // namespace wreload::test
