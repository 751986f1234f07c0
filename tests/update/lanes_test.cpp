#include "lanes_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(lanes_disjoint, host_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_race, host_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_twins, host_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_abort, host_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_finish, host_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_gate, host_executor);
}  // namespace wreload::test
