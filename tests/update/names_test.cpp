#include "names_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(names_spelling, host_executor);
TEST_CASE_TEMPLATE_INVOKE(names_half_spelling, host_executor);
TEST_CASE_TEMPLATE_INVOKE(names_patterns, host_executor);
TEST_CASE_TEMPLATE_INVOKE(names_matching, host_executor);
TEST_CASE_TEMPLATE_INVOKE(names_ids, host_executor);
TEST_CASE_TEMPLATE_INVOKE(names_collide, host_executor);
TEST_CASE_TEMPLATE_INVOKE(names_disagree, host_executor);
}  // namespace wreload::test
