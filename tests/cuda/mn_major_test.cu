// MN-major scales, on the device: a suite of tests/update.
#include "../update/mn_major_suite.hpp"

#include "../cuda_memory.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(mn_major_worked, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_cold_equal, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_runtime, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_steps, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_twin, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(mn_major_audit, cuda_executor);

}  // namespace wreload::test
