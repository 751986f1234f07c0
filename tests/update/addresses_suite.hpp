#pragma once
/// Law 2: an update starts only where every registered tensor is where, and what, it was.

#include "engine.hpp"

namespace wreload::test {

/// One way in which an engine may have lost a tensor.
struct spoil {
  const char* what;
  void (*apply)(tensor_address&);
};
constexpr spoil spoils[] = {
    {"moved", [](tensor_address& at) { at.data = static_cast<const std::byte*>(at.data) + 16; }},
    {"null", [](tensor_address& at) { at.data = nullptr; }},
    {"resized", [](tensor_address& at) { at.extents = {1234}; }},
    {"another rank", [](tensor_address& at) { at.extents.push_back(1); }},
    {"retyped", [](tensor_address& at) { at.type = at.type == dtype::fp16 ? dtype::bf16 : dtype::fp16; }},
    {"another stride", [](tensor_address& at) { at.row_stride_bytes = 4096; }},
};

inline bool find_in_list(std::string_view name, tensor_address* found, void* context) {
  for (const tensor_address& each : *static_cast<std::vector<tensor_address>*>(context))
    if (each.name == name) {
      *found = each;
      return true;
    }
  return false;
}

/// Starts with these addresses; the refusal has to name `name`, and the model has to stay as it was.
template <class Executor>
void check_moved(engine<Executor>& tested, std::vector<tensor_address>& now, const std::string& name) {
  for (const bool callback : {false, true}) {
    engine_addresses addresses;
    if (callback)
      addresses.find = find_in_list, addresses.context = &now;
    else
      addresses.list = now;
    const auto before = tested.image();
    status refused;
    const update<Executor> opened = tested.model().start({.addresses = addresses}, &refused);
    CHECK(!opened.is_open());
    check_refused(refused, error_code::moved, name);
    CHECK(tested.model().state() == model_state::live);
    CHECK(before == tested.image());
    audit_result audited;
    must(tested.model().audit(model_snapshot{}, addresses, &audited));
    CHECK(audited.moved == std::vector<std::string>{name});
    CHECK(!audited.clean());
  }
}

TEST_CASE_TEMPLATE_DEFINE("law 2: start and audit notice a tensor that moved, vanished, or changed", Executor,
                          addresses_moved) {
  for (const std::int64_t gap : {0, 2}) {
    engine<Executor> tested(small_model(), gap);
    const auto a = random_checkpoint(tested.layers(), 1);
    tested.reload(a);
    for (std::size_t t = 0; t < tested.tensors().size(); ++t) {
      const std::string name = tested.tensors()[t].plan.name;
      for (const spoil& each : spoils) {
        CAPTURE(each.what);
        std::vector<tensor_address> now = tested.addresses();
        each.apply(now[t]);
        check_moved(tested, now, name);
      }
      std::vector<tensor_address> now = tested.addresses();
      now.erase(now.begin() + static_cast<std::ptrdiff_t>(t));
      check_moved(tested, now, name);
    }
    // As registered, with tensors beside that are not the library's: accepted, and the update works.
    std::vector<tensor_address> now = tested.addresses();
    now.push_back({"kv_cache", tested.tensors()[0].data, dtype::fp8_e4m3, {5}, 0});
    update<Executor> open = tested.start({.addresses = {.list = now}});
    must(tested.send(open, a));
    must(open.finish());
    tested.demand_cold(a);
  }
}

TEST_CASE_TEMPLATE_DEFINE("law 2: nothing an update does moves a tensor", Executor, addresses_fixed) {
  engine<Executor> tested(small_model(), 1);
  const std::vector<tensor_address> registered = tested.addresses();
  for (std::uint64_t seed = 1; seed < 6; ++seed)
    tested.reload(random_checkpoint(tested.layers(), seed, seed % 2 == 0 ? stored_as::bf16 : stored_as::mixed));
  for (std::size_t i = 0; i < registered.size(); ++i) {
    CHECK(tested.model().params()[i].name() == registered[i].name);
    CHECK((tested.model().params()[i].data == registered[i].data));
    CHECK(tested.model().params()[i].row_stride_bytes == tested.tensors()[i].row_stride_bytes);
  }
}

TEST_CASE_TEMPLATE_DEFINE("start refuses what cannot be one update", Executor, start_refusals) {
  engine<Executor> tested(small_model());
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto refused_with = [&](const start_options& options) {
    status refused;
    const update<Executor> opened = tested.model().start(options, &refused);
    CHECK(!opened.is_open());
    return refused;
  };
  const std::vector<std::string_view> some = {"norm.weight"};
  check_refused(refused_with({.scope = update_scope::partial(some)}), error_code::wrong_state);  // never loaded
  tested.reload(a);
  {
    update<Executor> open = tested.start();
    CHECK((tested.model().state() == model_state::updating) == owns_at_once());
    check_refused(refused_with({}), error_code::wrong_state);
    must(tested.send(open, a));  // the refused start did not disturb the open one
    must(open.finish());
  }
  check_refused(refused_with({.base_version = 1}), error_code::wrong_base);
  check_refused(refused_with({.scope = update_scope::partial({})}), error_code::bad_argument);
  check_refused(refused_with({.scope = update_scope::under("nothing.")}), error_code::bad_argument);
  const std::vector<std::string_view> unknown = {"norm.weight", "norm.wieght"};
  check_refused(refused_with({.scope = update_scope::partial(unknown)}), error_code::unknown_name, "norm.wieght");
  CHECK(tested.model().state() == model_state::live);
  must(tested.start({.base_version = 2}).abort());
  CHECK(tested.model().state() == model_state::live);
}

TEST_CASE_TEMPLATE_DEFINE("a model that is not sealed, or sealed twice", Executor, seal_refusals) {
  model<Executor> none;
  check_refused(none.seal(), error_code::bad_argument);
  status refused;
  CHECK(!none.start({}, &refused).is_open());
  check_refused(refused, error_code::wrong_state);
  engine<Executor> tested(small_model());
  check_refused(tested.model().seal(), error_code::wrong_state);
  std::byte more[64];
  check_refused(tested.model().template add<Plain>("late", extents::tensor("late", {4}, dtype::bf16), more),
                error_code::wrong_state, "late");
  update<Executor> closed;
  CHECK(!closed.is_open());
  check_refused(closed.load("norm.weight", {}), error_code::wrong_state);
  check_refused(closed.finish(), error_code::wrong_state);
  CHECK(closed.abort().ok());
}

}  // namespace wreload::test
