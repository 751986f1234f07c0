// Any operation fails, on the device: the suite of tests/update, every few operations.
#include "../update/landing_suite.hpp"
#include "kernels.cuh"
#include "test_device.cuh"

namespace wreload::test {

TEST_CASE_TEMPLATE_INVOKE(injection_update, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_lasting, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_undo, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_rollback, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_first, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_sleep, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_torn, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_seal, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(injection_audit, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(landing_then_direct, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(landing_room, cuda_executor);

TEST_CASE("cuda: what a transport writes is not overtaken by what was queued before") {
  mixed_engine<cuda_executor> tested;
  must(tested.model().seal());
  const auto a = tested.checkpoint_of(1), b = tested.checkpoint_of(3);
  tested.reload(a);
  const std::string_view names[] = {"norm.weight"};
  for (const update_mode mode : {update_mode::direct, update_mode::swap}) {  // a retracted load; the copy to spare pages
    tested.reload(a);
    const auto stream = static_cast<cudaStream_t>(tested.memory().stream(0).handle);
    delay<<<1, 1, 0, stream>>>(100'000'000);
    status refused;
    auto open = tested.model().start({.mode = mode, .scope = update_scope::partial(names), .stream = tested.memory().stream(0)}, &refused);
    must(refused);
    if (mode == update_mode::direct) {
      must(open.load("norm.weight", tested.place(a.at("norm.weight"))));
      must(open.retract("norm.weight"));
    }
    direct_landing where;
    must(open.landing("norm.weight", {}, dtype::bf16, &where));
    write_landing(tested, where, b.at("norm.weight"));
    must(open.adopt(names, load_form::checkpoint));
    must(open.finish());
    CHECK(tested.difference(over(a, {{"norm.weight", b.at("norm.weight")}})) == "");
    open = {};
  }
}

}  // namespace wreload::test
