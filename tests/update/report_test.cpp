#include "report_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(report_counts, host_executor);
TEST_CASE_TEMPLATE_INVOKE(report_not_needed, host_executor);
TEST_CASE_TEMPLATE_INVOKE(report_not_sent, host_executor);
TEST_CASE_TEMPLATE_INVOKE(report_changed, host_executor);
TEST_CASE_TEMPLATE_INVOKE(report_other_loads, host_executor);
TEST_CASE_TEMPLATE_INVOKE(report_all_codes, host_executor);
TEST_CASE_TEMPLATE_INVOKE(report_all_widenings, host_executor);
}  // namespace wreload::test
