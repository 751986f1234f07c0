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
  // A retracted load; a layer's way from memory aside that serves the next one; the copy to spare pages.
  for (const update_mode mode : {update_mode::direct, update_mode::layerwise, update_mode::swap}) {
    tested.reload(a);
    const bool sends_two = mode == update_mode::layerwise;
    const std::vector<std::string_view> names = sends_two ? std::vector<std::string_view>{"norm.weight", "embed.weight"}
                                                          : std::vector<std::string_view>{"norm.weight"};
    auto expected = over(a, {{"norm.weight", b.at("norm.weight")}});
    if (sends_two) expected = over(expected, {{"embed.weight", b.at("embed.weight")}});
    const auto stream = static_cast<cudaStream_t>(tested.memory().stream(0).handle);
    delay<<<1, 1, 0, stream>>>(100'000'000);
    status refused;
    auto open = tested.model().start({.mode = mode, .scope = update_scope::partial(names), .stream = tested.memory().stream(0),
                                      .staging = {.budget_bytes = sends_two ? 32 : 0}},
                                     &refused);
    must(refused);
    if (mode == update_mode::direct) {
      must(open.load("norm.weight", tested.place(a.at("norm.weight"))));
      must(open.retract("norm.weight"));
    }
    if (sends_two) must(open.load("embed.weight", tested.place(b.at("embed.weight"))));
    direct_landing where;
    must(open.landing("norm.weight", {}, dtype::bf16, &where));
    write_landing(tested, where, b.at("norm.weight"));
    must(open.adopt({names.data(), 1}, load_form::checkpoint));
    must(open.finish());
    CHECK(tested.difference(expected) == "");
    open = {};
  }
}

}  // namespace wreload::test
