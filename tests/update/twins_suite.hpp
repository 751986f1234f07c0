#pragma once
/// Two names for the same bytes: either or both may come; if they differ, `finish` refuses and names both.

#include "../property.hpp"
#include "closed_checks.hpp"
#include "generators.hpp"

namespace wreload::test {

/// An embedding whose bytes also come as `lm_head.weight`, FP8 weights `a` = `b`, and a norm.
inline std::vector<reference::layer> tied_model() {
  return {plain("embed.weight", {6, 5}), linear("a", 5, 7), plain("norm.weight", {7})};
}
template <class Executor>
engine<Executor> tied_engine(std::int64_t gap = 0) {
  return engine<Executor>(tied_model(), gap, [](wr::model<Executor>& model) {
    model.same_as("embed.weight", "lm_head.weight");
    model.same_as("a.weight", "b.weight");
    model.same_as("a.weight_scale_inv", "b.weight_scale_inv");
  });
}
inline std::string second_name(const std::string& name) {
  if (name == "embed.weight") return "lm_head.weight";
  if (name.starts_with("a.")) return "b." + name.substr(2);
  return name;
}

TEST_CASE_TEMPLATE_DEFINE("a tied tensor comes under either name, or both", Executor, twins_either) {
  engine<Executor> tested = tied_engine<Executor>(1);
  for (int which = 0; which < 4; ++which) {
    const auto all = random_checkpoint(tested.layers(), 10 + static_cast<std::uint64_t>(which), stored_as::fp8);
    update<Executor> open = tested.start();
    for (const auto& [name, value] : all) {
      const std::string second = second_name(name);
      const bool both = which >= 2 && second != name;
      must(open.load(which == 1 || which == 3 ? second : name, tested.place(value)));
      if (both) must(open.load(which == 3 ? name : second, tested.place(value)));
    }
    CHECK(open.report().warnings.empty());
    must(open.finish());
    CHECK(open.report().converted_rows == 5);  // once, under however many names
    tested.demand_cold(all);
  }
}

TEST_CASE_TEMPLATE_DEFINE("neither name: the tied tensor is missing", Executor, twins_neither) {
  engine<Executor> tested = tied_engine<Executor>();
  const auto all = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  for (const auto& [name, value] : all)
    if (name != "embed.weight") must(open.load(second_name(name), tested.place(value)));
  check_incomplete(tested, open, "embed.weight");
  CHECK(open.report().missing.size() == 1);
  must(open.load("lm_head.weight", tested.place(all.at("embed.weight"))));
  must(open.finish());
  tested.demand_cold(all);
}

TEST_CASE_TEMPLATE_DEFINE("the same name twice is a duplicate, tied or not", Executor, twins_duplicate) {
  engine<Executor> tested = tied_engine<Executor>();
  const auto all = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  must(open.load("lm_head.weight", tested.place(all.at("embed.weight"))));
  check_refused(open.load("lm_head.weight", tested.place(all.at("embed.weight"))), error_code::duplicate,
                "lm_head.weight");
  must(open.load("embed.weight", tested.place(all.at("embed.weight"))));
  check_refused(open.load("embed.weight", tested.place(all.at("embed.weight"))), error_code::duplicate, "embed.weight");
  // A row in two formats, each under a name of its own.
  const auto in_fp8 = random_checkpoint(tested.layers(), 1, stored_as::fp8), in_bf16 = random_checkpoint(tested.layers(), 1, stored_as::bf16);
  must(open.load("a.weight", tested.place(in_fp8.at("a.weight"))));
  check_refused(open.load("b.weight", tested.place(in_bf16.at("a.weight"))), error_code::mixed_formats, "b.weight");
  must(open.load("b.weight", tested.place(in_fp8.at("a.weight"))));
}

TEST_CASE_TEMPLATE_DEFINE("two names that differ: finish refuses, names both, and goes on", Executor, twins_conflict) {
  engine<Executor> tested = tied_engine<Executor>(1);
  const auto good = random_checkpoint(tested.layers(), 1);
  for (const char* name : {"embed.weight", "a.weight", "a.weight_scale_inv"})
    for (const bool first_is_wrong : {false, true})
      for (const bool retract_second : {false, true}) {
        CAPTURE(name);
        auto spoiled = good.at(name);
        spoiled.bytes[spoiled.bytes.size() - 1] ^= std::byte{1};  // the last element, one bit
        const std::string second = second_name(name);
        update<Executor> open = tested.start();
        for (const auto& [each, value] : good)
          if (each != name) must(open.load(each, tested.place(value)));
        must(open.load(name, tested.place(first_is_wrong ? spoiled : good.at(name))));
        must(open.load(second, tested.place(first_is_wrong ? good.at(name) : spoiled)));
        for (int again = 0; again < 2; ++again) {
          const std::int64_t launches = tested.model().executor().launches();
          const status refused = open.finish();
          check_refused(refused, error_code::conflict, name);
          CHECK(refused.message().find(second) != std::string::npos);
          CHECK(tested.model().executor().launches() == launches);
          CHECK((tested.model().state() == model_state::updating) == owns_at_once());
        }
        must(open.retract(retract_second ? second : name));
        check_incomplete(tested, open, name);
        must(open.load(second, tested.place(good.at(name))));
        must(open.load(name, tested.place(good.at(name))));
        must(open.finish());
        tested.demand_cold(good);
      }
}

TEST_CASE_TEMPLATE_DEFINE("tied names in overlapping pieces, any order", Executor, twins_pieces) {
  property("equal pieces agree, one changed element is found", [] {
    engine<Executor> tested = tied_engine<Executor>(draw_small(0, 1));
    const auto good = random_checkpoint(tested.layers(), draw_seed(), one_in(2) ? stored_as::bf16 : stored_as::fp8);
    reference::checkpoint under_second;
    const bool conflict = one_in(2);
    for (const auto& [name, value] : good)
      if (second_name(name) != name && one_in(2)) under_second[name] = value;
    if (under_second.empty()) under_second["embed.weight"] = good.at("embed.weight");
    if (conflict) {
      auto& spoiled = under_second.begin()->second;
      spoiled.bytes[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(spoiled.bytes.size()) - 1))] ^=
          std::byte{0x10};
    }
    std::vector<parcel> all = draw_delivery(good);
    for (parcel& each : draw_delivery(under_second)) {
      if (each.name.ends_with("_scale")) each.name += "_inv";  // the second name has no second spelling
      each.name = second_name(each.name);
      all.insert(all.begin() + draw(0, static_cast<std::int64_t>(all.size())), each);
    }
    update<Executor> open = tested.start();
    send_delivery(tested, open, all);
    const status finished = open.finish();
    demand(finished.code == (conflict ? error_code::conflict : error_code::ok), finished.message());
    if (!conflict) {
      tested.demand_cold(good);
      return;
    }
    // Which of the two was written depends on the order; taken back and sent anew, it is right.
    for (const auto& entry : under_second) {
      must(open.retract(second_name(entry.first)));
      must(open.load(
          entry.first,
          tested.place(entry.second.bytes == good.at(entry.first).bytes ? entry.second : good.at(entry.first))));
    }
    must(open.finish());
    tested.demand_cold(good);
  });
}

TEST_CASE_TEMPLATE_DEFINE("a second name of FP8 bytes that comes when everything else is whole", Executor, twins_late) {
  const auto before_seal = [](wr::model<Executor>& model) { model.same_as("a.weight", "b.weight"); };
  for (const std::int64_t budget : {1 << 16, 16})  // mode layerwise: aside, and direct for want of room
    for (const bool differs : {false, true}) {
      engine<Executor> tested({linear("a", 5, 7), plain("norm.weight", {7})}, 0, before_seal);
      auto all = random_checkpoint(tested.layers(), 3, stored_as::fp8);
      start_options options = in_mode_under_test({});
      if (options.mode == update_mode::layerwise) options.staging = {.budget_bytes = budget, .or_direct = true};
      update<Executor> open = tested.start(options);
      must(tested.send(open, all));
      reference::tensor second = all.at("a.weight");
      if (differs) second.bytes[3] ^= std::byte{1};
      must(open.load("b.weight", tested.place(second)));
      if (differs) check_refused(open.finish(), error_code::conflict, "b.weight");
      if (differs) must(open.retract("b.weight"));
      if (differs) must(open.load("b.weight", tested.place(all.at("a.weight"))));
      must(open.finish());
      tested.demand_cold(all);
    }
}

TEST_CASE_TEMPLATE_DEFINE("SameAs in a layout", Executor, twins_policy) {
  layout_engine<Executor> tested;
  tested.template add<TwinWeight>("layer", vector_of("m", 4));
  must(tested.model().seal());
  const auto good = halves(4, 0x3F80);
  for (const char* name : {"m.weight", "m.alternative"}) {
    update<Executor> open = tested.start();
    must(open.load(name, tested.place(good)));
    must(open.finish());
    CHECK(tested.bytes("layer.weight") == good.bytes);
  }
  update<Executor> open = tested.start();
  must(open.load("m.weight", tested.place(good)));
  must(open.load("m.alternative", tested.place(halves(4, 0x3F81))));
  const status refused = open.finish();
  check_refused(refused, error_code::conflict, "m.weight");
  CHECK(refused.message().find("m.alternative") != std::string::npos);
  must(open.retract("m.alternative"));
  must(open.load("m.alternative", tested.place(halves(4, 0x3F81))));
  must(open.finish());
  CHECK(tested.bytes("layer.weight") == halves(4, 0x3F81).bytes);
}

TEST_CASE_TEMPLATE_DEFINE("a partial scope that declares one of two names", Executor, twins_partial) {
  engine<Executor> tested = tied_engine<Executor>();
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  const std::vector<std::string_view> head = {"lm_head.weight"};
  update<Executor> open = tested.start_partial(head);
  check_refused(open.load("embed.weight", tested.place(b.at("embed.weight"))), error_code::out_of_scope,
                "embed.weight");
  check_refused(open.finish(), error_code::incomplete);
  must(open.load("lm_head.weight", tested.place(b.at("embed.weight"))));
  must(open.finish());
  tested.demand_cold(reference::overlay(a, {{"embed.weight", b.at("embed.weight")}}));
}

TEST_CASE_TEMPLATE_DEFINE("same_as needs a first name of the model and a second that is free", Executor,
                          twins_refused) {
  const auto seal_with = [](std::string_view name, std::string_view second) {
    layout_engine<Executor> tested;
    tested.template add<KeptScale>("layer", vector_of("m", 4));
    tested.model().same_as(name, second);
    return tested.model().seal();
  };
  check_refused(seal_with("nobody", "other"), error_code::unknown_name, "nobody");
  check_refused(seal_with("m.weight", "m.input_scale"), error_code::bad_layout, "m.input_scale");
  CHECK(seal_with("m.weight", "other").ok());
}

}  // namespace wreload::test
