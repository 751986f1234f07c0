#include "fp8_block_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(fp8_block_cold_equal, host_executor);
TEST_CASE_TEMPLATE_INVOKE(fp8_block_pairs, host_executor);
TEST_CASE_TEMPLATE_INVOKE(fp8_block_refuses, host_executor);
}  // namespace wreload::test
