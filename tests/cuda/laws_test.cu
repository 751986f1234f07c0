// The laws, on the device: suites of tests/update.
#include "../update/cold_equal_suite.hpp"
#include "../update/untouched_suite.hpp"
#include "../update/closed_suite.hpp"
#include "../update/torn_suite.hpp"

#include "../cuda_memory.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(cold_equal_complete, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(cold_equal_partial, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(cold_equal_retract, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(cold_equal_runtime, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(untouched_partial, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(untouched_pads, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(untouched_shards, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(untouched_half_row, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(once_twice, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(once_work, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(once_duplicates, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(once_retract, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_each_missing, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_piece_missing, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_left_twice, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_old_scale, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_scale_alone, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_mixed_rows, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_scopes, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_lists, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_kept, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_kept_aborted, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_kept_retract, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_kept_twin, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_runtime, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(closed_landing, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_before_write, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_after_write, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_random, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_after_end, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_moved, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_execution, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(torn_stages, cuda_executor);

}  // namespace wreload::test
