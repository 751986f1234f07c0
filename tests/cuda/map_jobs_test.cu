// Landings, comparisons and digests through maps, and combined scalars, on the device: cases of tests/executor.
#include "../executor/executor_suite.hpp"

#include "../cuda_memory.cuh"

using wreload::cuda_executor;

TEST_CASE_TEMPLATE_INVOKE(executor_land_mapped, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_land_map_edges, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_swizzled_sizes, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_compare_mapped, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_digest, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_land_digested, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_digest_mapped, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_digest_mn_major, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_combine, cuda_executor);
