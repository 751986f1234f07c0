#pragma once
/// `landing` and `adopt` where an update keeps bytes aside: memory for a transport is taken as that of a load is.

#include <string_view>
#include <vector>

#include "mixed_engine.hpp"

namespace wreload::test {

/// Writes a tensor where `landing` said.
template <class Executor>
void write_landing(mixed_engine<Executor>& tested, const direct_landing& where, const reference::tensor& from) {
  const std::int64_t row_bytes = where.cols * bytes_of(where.type);
  for (std::int64_t r = 0; r < where.rows; ++r)
    tested.memory().write(where.data + r * where.row_stride_bytes, from.bytes.data() + r * row_bytes, row_bytes);
}

TEST_CASE_TEMPLATE_DEFINE("a box granted aside lands, though its layer went direct before it was adopted", Executor, landing_then_direct) {
  for (const undo_mode undo : {undo_mode::none, undo_mode::host})
    for (const bool aborts : {false, true}) {
      mixed_engine<Executor> tested;
      must(tested.model().seal());
      const auto a = mixed_engine<Executor>::checkpoint_of(2), b = mixed_engine<Executor>::checkpoint_of(4);  // FP8
      tested.reload(a);
      const auto before = tested.image();
      const tensor_ref kv = tested.place(b.at("kv.weight"));
      status refused;
      auto open = tested.model().start({.mode = update_mode::layerwise,
                                        .stream = tested.memory().stream(0),
                                        .staging = {.budget_bytes = 48, .or_direct = true},
                                        .undo = undo},
                                       &refused);
      must(refused);
      direct_landing where, again;
      must(open.landing("q.weight", {}, dtype::fp8_e4m3, &where));  // 35 bytes
      must(open.load("kv.weight", kv));                             // 28 more
      REQUIRE(open.report().direct_layers == std::vector<std::string>{"qkv"});
      must(open.landing("q.weight", {}, dtype::fp8_e4m3, &again));
      CHECK(again.data == where.data);
      const box some = box::rows({5, 7}, 0, 2);
      check_refused(open.landing("q.weight", some, dtype::fp8_e4m3, &again), error_code::unsupported, "q.weight");
      write_landing(tested, where, b.at("q.weight"));
      const std::string_view names[] = {"q.weight"};
      must(open.adopt(names, load_form::checkpoint));
      auto rest = b;
      for (const char* name : {"q.weight", "kv.weight"}) rest.erase(name);
      must(tested.deliver(open, rest));
      if (!aborts) {
        must(open.finish());
        CHECK(tested.difference(b) == "");
      } else {
        must(open.abort());
        CHECK(tested.model().state() == (undo == undo_mode::host ? model_state::live : model_state::undefined));
        if (undo == undo_mode::host) CHECK((before == tested.image()));
      }
    }
}

TEST_CASE_TEMPLATE_DEFINE("landing takes memory aside without a limit, and goes direct where it may", Executor, landing_room) {
  for (const update_mode mode : {update_mode::staged, update_mode::layerwise})
    for (const bool or_direct : {false, true}) {
      if (or_direct && mode == update_mode::staged) continue;
      mixed_engine<Executor> tested;
      must(tested.model().seal());
      const auto a = mixed_engine<Executor>::checkpoint_of(2), b = mixed_engine<Executor>::checkpoint_of(4);
      tested.reload(a);
      const auto before = tested.image();
      status refused;
      auto open = tested.model().start({.mode = mode,
                                        .stream = tested.memory().stream(0),
                                        .staging = {.budget_bytes = or_direct ? 16 : staging_memory::no_limit, .or_direct = or_direct}},
                                       &refused);
      must(refused);
      direct_landing where;
      must(open.landing("q.weight", {}, dtype::fp8_e4m3, &where));  // the first of the update
      write_landing(tested, where, b.at("q.weight"));
      CHECK((before == tested.image()) == !or_direct);
      const std::string_view names[] = {"q.weight"};
      must(open.adopt(names, load_form::checkpoint));
      auto rest = b;
      rest.erase("q.weight");
      must(tested.deliver(open, rest));
      must(open.finish());
      CHECK(tested.difference(b) == "");
      open = {};
    }
}

}  // namespace wreload::test
