#include "addresses_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(addresses_moved, host_executor);
TEST_CASE_TEMPLATE_INVOKE(addresses_fixed, host_executor);
TEST_CASE_TEMPLATE_INVOKE(start_refusals, host_executor);
TEST_CASE_TEMPLATE_INVOKE(seal_refusals, host_executor);
}  // namespace wreload::test
