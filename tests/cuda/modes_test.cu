// Modes, swap and sleep on the device: the suites of tests/update on cuda_executor.
#include "../cuda_memory.cuh"

#include "../update/swap_suite.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(modes_staged_atomic, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_staged_lent, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_staged_retract, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_digests, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_layerwise, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_layerwise_budget, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_or_direct, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_layerwise_retract, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_undo, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_adopt, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_twins, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_thousand, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_versions, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(swap_atomic, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(swap_rollback, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(swap_needs, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(swap_sleep, cuda_executor);

}  // namespace wreload::test
