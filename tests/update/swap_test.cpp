#include "swap_suite.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(swap_atomic, host_executor);
TEST_CASE_TEMPLATE_INVOKE(swap_rollback, host_executor);
TEST_CASE_TEMPLATE_INVOKE(swap_needs, host_executor);
TEST_CASE_TEMPLATE_INVOKE(swap_sleep, host_executor);

}  // namespace wreload::test
