// Calls, names, twins and reports, on the device: suites of tests/update.
#include "../update/addresses_suite.hpp"
#include "../update/names_suite.hpp"
#include "../update/refuse_suite.hpp"
#include "../update/report_suite.hpp"
#include "../update/twins_suite.hpp"

#include "../cuda_memory.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(addresses_moved, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(addresses_fixed, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(start_refusals, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(seal_refusals, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(names_spelling, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(names_half_spelling, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(names_patterns, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(names_matching, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(names_ids, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(names_collide, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(names_disagree, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_single, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_all, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_batch, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_landings, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_scope, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(refuse_static, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(report_counts, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(report_not_needed, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(report_not_sent, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(report_changed, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(report_other_loads, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(report_all_codes, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(report_all_widenings, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_either, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_neither, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_duplicate, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_conflict, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_pieces, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_late, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_policy, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_partial, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_refused, cuda_executor);

}  // namespace wreload::test
