#include "by_name_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(named_scales_first, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_mixed_shards, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_bf16_only, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_row_parallel, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_column_parallel, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_rectangles, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_kv_heads, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_replicated_shard, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_indexer, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_mimo_one_grid, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_mimo_grids, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_mimo_reordered, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_fused_on_disk, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_experts, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_vocabulary, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_rotary, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_shared_source, host_executor);
TEST_CASE_TEMPLATE_INVOKE(named_reshaped, host_executor);
}  // namespace wreload::test
