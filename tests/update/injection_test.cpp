#include "injection_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(injection_update, host_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_lasting, host_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_undo, host_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_rollback, host_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_first, host_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_sleep, host_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_torn, host_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_seal, host_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_audit, host_executor);
}  // namespace wreload::test
