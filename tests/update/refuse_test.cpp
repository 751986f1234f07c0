#include "refuse_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(refuse_single, host_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_all, host_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_batch, host_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_landings, host_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_scope, host_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_static, host_executor);
}  // namespace wreload::test
