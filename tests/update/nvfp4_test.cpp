#include "nvfp4_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(nvfp4_cold_equal, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_partial, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_repair, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_linears, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_moe, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_one_expert, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_depends, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_kept, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_nan, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_ranks, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_shared, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_runtime, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_runtime_pads, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_batch_pads, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_warns, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_refuses, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_twin, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_halves, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_execution, host_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_digest, host_executor);
}  // namespace wreload::test
