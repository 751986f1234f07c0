#include "landed_digests_suite.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(landed_digests_cuts, host_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_tiles, host_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_ranks, host_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_corrupt, host_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_uncounted, host_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_twins, host_executor);
TEST_CASE_TEMPLATE_INVOKE(landed_digests_maps, host_executor);

}  // namespace wreload::test
