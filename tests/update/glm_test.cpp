#include "glm_suite.hpp"

namespace wreload::test {
TEST_CASE_TEMPLATE_INVOKE(glm_reload, host_executor);
TEST_CASE_TEMPLATE_INVOKE(glm_digests, host_executor);
TEST_CASE_TEMPLATE_INVOKE(glm_strangers, host_executor);
}  // namespace wreload::test
