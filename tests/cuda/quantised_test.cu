// Quantised runtimes, on the device: suites of tests/update.
#include "../update/derived_suite.hpp"
#include "../update/fp8_block_suite.hpp"
#include "../update/nvfp4_suite.hpp"

#include "../cuda_memory.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(nvfp4_cold_equal, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_partial, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_repair, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_linears, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_moe, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_one_expert, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_depends, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_kept, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_nan, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_ranks, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_shared, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_runtime, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_runtime_pads, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_batch_pads, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_warns, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_refuses, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_twin, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_halves, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_execution, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(nvfp4_digest, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(fp8_block_cold_equal, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(fp8_block_pairs, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(fp8_block_refuses, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_absorbed, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_converted, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_levels, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_fails, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_strided, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_arithmetic, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(derived_dense, cuda_executor);

}  // namespace wreload::test
