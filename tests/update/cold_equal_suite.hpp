#pragma once
/// Law 1: after any legal sequence of loads, what kernels read equals a cold start from the logical checkpoint.

#include "../property.hpp"
#include "generators.hpp"

namespace wreload::test {

constexpr stored_as formats[] = {stored_as::fp8, stored_as::bf16, stored_as::mixed};

template <class Executor>
void complete_update(engine<Executor>& to, const reference::checkpoint& all) {
  update<Executor> open = to.start();
  send_delivery(to, open, draw_delivery(all));
  must(open.finish());
  to.memory().drop_sources();
}

TEST_CASE_TEMPLATE_DEFINE("law 1: A, A -> B, A -> B -> A equal a cold start", Executor, cold_equal_complete) {
  property("complete updates in any order and any cut", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 2));
    const reference::checkpoint a = random_checkpoint(layers, draw_seed(), formats[draw(0, 2)]);
    const reference::checkpoint b = random_checkpoint(layers, draw_seed(), formats[draw(0, 2)]);
    const auto addresses = tested.addresses();
    complete_update(tested, a);
    tested.demand_cold(a);
    const auto first = tested.image();
    complete_update(tested, b);
    tested.demand_cold(b);
    complete_update(tested, a);
    tested.demand_cold(a);
    const auto again = tested.image();
    for (std::size_t t = 0; t < first.size(); ++t)
      if (!tested.tensors()[t].plan.retired) demand(first[t] == again[t], "A after B differs from A");
    demand(tested.model().version() == 3 && tested.model().state() == model_state::live, "version 3 and live");
    audit_result audited;
    must(tested.model().audit(digest_list{}, {.list = addresses}, &audited));
    demand(audited.moved.empty() && audited.memory_growth == 0, "a tensor moved, or memory grew");
  });
}

TEST_CASE_TEMPLATE_DEFINE("law 1: partial updates overlay the logical checkpoint", Executor, cold_equal_partial) {
  property("any declared subset, FP8 over BF16 and back", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 2));
    reference::checkpoint logical = random_checkpoint(layers, draw_seed(), formats[draw(0, 2)]);
    complete_update(tested, logical);
    for (std::int64_t left = draw_small(1, 3); left > 0; --left) {
      const auto next = draw_subset(random_checkpoint(layers, draw_seed(), formats[draw(0, 2)]));
      std::vector<std::string_view> names;
      for (const auto& entry : next) names.push_back(entry.first);
      update<Executor> open = tested.start_partial(names);
      send_delivery(tested, open, draw_delivery(next));
      must(open.finish());
      tested.memory().drop_sources();
      logical = reference::overlay(logical, next);
      tested.demand_cold(logical);
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("law 1: pieces taken back and sent again, refused pieces in between", Executor,
                          cold_equal_retract) {
  property("retract, resend, duplicates", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 1));
    const reference::checkpoint wrong = random_checkpoint(layers, draw_seed(), formats[draw(0, 2)]);
    const reference::checkpoint right = random_checkpoint(layers, draw_seed(), formats[draw(0, 2)]);
    update<Executor> open = tested.start();
    std::vector<parcel> sent = draw_delivery(wrong);
    sent.resize(static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(sent.size()))));
    send_delivery(tested, open, sent);
    for (const auto& entry : wrong) must(open.retract(entry.first));
    const std::vector<parcel> all = draw_delivery(right);
    for (const parcel& each : all) {
      const placed_source at = tested.memory().place(each.bytes.data(), static_cast<std::int64_t>(each.bytes.size()));
      const tensor_ref tensor{at.data, each.type, each.extents, each.strides, at.memory};
      must(open.load(each.name, tensor, each.part));
      const report before = open.report();
      const status twice = open.load(each.name, tensor, each.part);
      const bool needed = before.not_needed.bytes != open.report().not_needed.bytes;
      demand(twice.code == (needed || tensor.extents.elements() == 0 ? error_code::ok : error_code::duplicate),
             each.name + ", sent twice: " + twice.message());
    }
    must(open.finish());
    tested.demand_cold(right);
  });
}

TEST_CASE_TEMPLATE_DEFINE("law 1: runtime-format loads land as they are", Executor, cold_equal_runtime) {
  property("an engine's own copy of some tensors, checkpoint format for the rest", [] {
    const std::vector<reference::layer> layers = draw_model();
    RC_LOG() << in_words(layers);
    engine<Executor> tested(layers, draw_small(0, 2));
    const reference::checkpoint a = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    complete_update(tested, random_checkpoint(layers, draw_seed(), stored_as::mixed));
    update<Executor> open = tested.start();
    for (const auto& each : tested.tensors()) {  // every weight as the engine keeps it; scales are then not needed
      if (each.plan.retired) continue;
      const reference::tensor cache{each.plan.type, each.plan.sizes, reference::cold_bytes(each.plan, a)};
      const std::int64_t at = each.plan.rows < 2 ? 0 : draw(0, each.plan.rows);
      if (at == 0) {
        must(open.load(each.plan.name, tested.place(cache), {}, load_form::runtime));
        continue;
      }
      const reference::tensor matrix{each.plan.type, {each.plan.rows, each.plan.cols}, cache.bytes};
      const std::pair<std::int64_t, std::int64_t> halves[] = {{at, each.plan.rows}, {0, at}};
      for (const auto& [begin, end] : halves) {
        if (begin == end) continue;
        const parcel rows = pack(each.plan.name, matrix, shape{begin, 0}, shape{end - begin, each.plan.cols}, 0);
        const placed_source source =
            tested.memory().place(rows.bytes.data(), static_cast<std::int64_t>(rows.bytes.size()));
        must(open.load(each.plan.name, {source.data, rows.type, rows.extents, {}, source.memory}, rows.part,
                       load_form::runtime));
      }
    }
    must(open.finish());
    tested.demand_cold(a);
    demand(open.report().converted_rows == 0, "rows that came as the engine keeps them were converted");
  });
}

}  // namespace wreload::test
