#include "audit_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(audit_difference, host_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_outside, host_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_not_comparable, host_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_shardings, host_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_random, host_executor);
}  // namespace wreload::test
