#include "landing_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(landing_then_direct, host_executor);
TEST_CASE_TEMPLATE_INVOKE(landing_room, host_executor);
}  // namespace wreload::test
