// Memory, lanes and audits, on the device: suites of tests/update.
#include "../update/bounded_suite.hpp"
#include "../update/lanes_suite.hpp"
#include "../update/audit_suite.hpp"

#include "plan_room.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(bounded_loads, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_other_loads, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_returned, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_flat, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_absurd, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_replay, cuda_planning);
TEST_CASE_TEMPLATE_INVOKE(lanes_disjoint, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_race, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_twins, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_abort, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(lanes_finish, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_difference, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_outside, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_not_comparable, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_shardings, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(audit_random, cuda_executor);

}  // namespace wreload::test
