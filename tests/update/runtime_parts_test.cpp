#include "runtime_parts_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_nvfp4, host_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_halves, host_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_ranks, host_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_experts, host_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_refused, host_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_wide, host_executor);
}  // namespace wreload::test
