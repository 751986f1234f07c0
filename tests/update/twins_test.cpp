#include "twins_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(twins_either, host_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_neither, host_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_duplicate, host_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_conflict, host_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_pieces, host_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_late, host_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_policy, host_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_partial, host_executor);
TEST_CASE_TEMPLATE_INVOKE(twins_refused, host_executor);
}  // namespace wreload::test
