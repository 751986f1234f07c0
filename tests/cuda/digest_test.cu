// Digests as a by-product of landing, on the device: tests/update/landed_digests_suite.hpp on cuda_executor.
#include "../cuda_memory.cuh"

#include "../update/landed_digests_suite.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(landed_digests_cuts, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_tiles, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_ranks, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_corrupt, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_uncounted, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_twins, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_maps, cuda_executor);

}  // namespace wreload::test
