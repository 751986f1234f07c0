#include "derived_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(derived_absorbed, host_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_converted, host_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_levels, host_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_fails, host_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_strided, host_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_arithmetic, host_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_dense, host_executor);
}  // namespace wreload::test
