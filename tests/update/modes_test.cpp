#include "modes_suite.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(modes_staged_atomic, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_staged_lent, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_staged_retract, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_digests, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_layerwise, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_layerwise_budget, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_or_direct, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_layerwise_retract, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_fused, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_undo, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_adopt, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_twins, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_thousand, host_executor);
TEST_CASE_TEMPLATE_INVOKE(modes_versions, host_executor);

}  // namespace wreload::test
