// The executor suite on plain memory.
#include <wreload/executor/host.hpp>

#include "executor_suite.hpp"

using wreload::host_executor;

static_assert(wreload::executor<host_executor>);
static_assert(host_executor::name == "host");

TEST_CASE_TEMPLATE_INVOKE(executor_land, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_land_codes, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_compare, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_compare_writes_nothing, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_fill, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_dequantise, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_dequantise_random, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_dequantise_large, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_dequantise_example, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_dequantise_unknown, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_order, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_lanes, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_digest, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_land_digested, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_first_difference, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_read, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_empty_calls, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_bounded, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_cancel, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_land_mapped, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_land_map_edges, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_swizzled_sizes, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_compare_mapped, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_digest_mapped, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_digest_mn_major, host_executor);
TEST_CASE_TEMPLATE_INVOKE(executor_combine, host_executor);

TEST_CASE("the host holds no memory of its own, and every verb has happened when it returns") {
  host_executor run;
  CHECK(run.reserve({.flags = 3}).ok());
  CHECK(run.allocated_bytes() == 0);
  CHECK(run.flags().size() == 3);
  auto lane = run.open({});
  std::byte one{};
  const wreload::fill_job fill{&one, 1, 1, 1, std::byte{9}};
  CHECK(run.fill(lane, std::span(&fill, 1)).ok());
  CHECK(one == std::byte{9});
  CHECK(run.record(lane).handle == nullptr);
  CHECK(run.check_idle({}).ok());
}
