#include "table_suite.hpp"

namespace wreload::test {
using host_planning = planning_executor<host_executor>;
TEST_CASE_TEMPLATE_INVOKE(table_replay, host_planning);
}  // namespace wreload::test
