#include "votes_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(votes_yes, host_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_refused, host_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_unknown, host_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_deadline, host_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_dead_early, host_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_doubt, host_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_dead_late, host_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_failed, host_executor);
}  // namespace wreload::test
