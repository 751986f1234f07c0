#include "bounded_suite.hpp"
#include "heap_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(bounded_loads, host_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_other_loads, host_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_returned, host_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_flat, host_executor);
TEST_CASE_TEMPLATE_INVOKE(bounded_absurd, host_executor);
using host_planning = planning_executor<host_executor>;
TEST_CASE_TEMPLATE_INVOKE(bounded_replay, host_planning);
TEST_CASE_TEMPLATE_INVOKE(heap_update, host_executor);
}  // namespace wreload::test
