// Parts of tensors in kernel order, on the device: a suite of tests/update.
#include "../update/runtime_parts_suite.hpp"

#include "../cuda_memory.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(runtime_parts_nvfp4, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_halves, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_ranks, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_experts, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_refused, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(runtime_parts_wide, cuda_executor);

}  // namespace wreload::test
