#pragma once
/// Law 9: what the library takes from the heap and from the device, and when it gives it back. The file that
/// instantiates this suite counts the heap: it includes tests/heap_counter.hpp.

#include "../heap_counter.hpp"
#include "../property.hpp"
#include "bucket_delivery.hpp"
#include "generators.hpp"
#include "layout_engine.hpp"

namespace wreload::test {

/// Tensors ready to send, so that a measured loop does nothing but load.
struct ready_tensor {
  std::string name = {};
  tensor_id id = {};
  tensor_ref tensor = {};
};

template <class Executor>
std::vector<ready_tensor> ready(engine<Executor>& tested, const reference::checkpoint& all) {
  std::vector<ready_tensor> list;
  for (const auto& [name, value] : all) list.push_back({name, tested.model().find(name), tested.place(value)});
  return list;
}

/// Many small fused layers: what a real model looks like to the books.
inline std::vector<reference::layer> many_layers(int count) {
  std::vector<reference::layer> layers;
  for (int i = 0; i < count; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".a_name_longer_than_any_short_string";
    layers.push_back(linear(name, {whole_shard(name + ".q_proj", 3), whole_shard(name + ".k_proj", 2)}, 5));
    layers.push_back(plain(name + ".norm.weight", {4}));
    layers.push_back(plain(name + ".bias", {4}, dtype::fp32, {dtype::bf16}));
  }
  return layers;
}

TEST_CASE_TEMPLATE_DEFINE("law 9: no heap per whole tensor, by name or by id", Executor, bounded_loads) {
  engine<Executor> tested(many_layers(60));
  tested.reload(random_checkpoint(tested.layers(), 1));
  const auto list = ready(tested, random_checkpoint(tested.layers(), 2, stored_as::fp8));
  for (const bool by_id : {false, true}) {
    update<Executor> open = tested.start();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::int64_t before = heap_now().allocations;
      const status result = by_id ? open.load(list[i].id, list[i].tensor) : open.load(list[i].name, list[i].tensor);
      const std::int64_t taken = heap_now().allocations - before;
      must(result);
      if (i >= 6) CHECK_MESSAGE(taken == 0, list[i].name << " took " << taken << " blocks");  // the lane is warm
    }
    must(open.finish());
  }
}

TEST_CASE_TEMPLATE_DEFINE("law 9: runtime-form loads and whole rows in order take none either", Executor,
                          bounded_other_loads) {
  engine<Executor> tested(many_layers(40));
  const auto all = random_checkpoint(tested.layers(), 2, stored_as::bf16);
  tested.reload(all);
  struct runtime_tensor {
    std::string name;
    tensor_ref tensor;
  };
  std::vector<runtime_tensor> list;
  for (const auto& each : tested.tensors())
    if (!each.plan.retired)
      list.push_back(
          {each.plan.name, tested.place({each.plan.type, each.plan.sizes, reference::cold_bytes(each.plan, all)})});
  {
    update<Executor> open = tested.start();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::int64_t before = heap_now().allocations;
      const status result = open.load(list[i].name, list[i].tensor, {}, load_form::runtime);
      const std::int64_t taken = heap_now().allocations - before;
      must(result);
      if (i >= 6) CHECK_MESSAGE(taken == 0, list[i].name << " took " << taken << " blocks");
    }
    must(open.finish());
  }
  update<Executor> open = tested.start();
  int index = 0;
  for (const ready_tensor& each : ready(tested, all)) {
    const std::int64_t rows = each.tensor.extents.rows();
    for (std::int64_t r = 0; r < rows; ++r) {
      tensor_ref row = each.tensor;
      row.extents[0] = 1;
      row.data = static_cast<const std::byte*>(row.data) + r * row.bytes();
      const std::int64_t before = heap_now().allocations;
      const status result = open.load(each.id, row, box::rows(each.tensor.extents, r, r + 1));
      const std::int64_t taken = heap_now().allocations - before;
      must(result);
      if (++index > 20) CHECK_MESSAGE(taken == 0, each.name << " row " << r << " took " << taken << " blocks");
    }
  }
  must(open.finish());
}

TEST_CASE_TEMPLATE_DEFINE("law 9: everything is given back when the update ends, however it ends", Executor,
                          bounded_returned) {
  engine<Executor> tested(many_layers(10), 1);
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto list = ready(tested, a);
  // Rectangles in an order that leaves holes, so that the books need their heap.
  const auto run = [&](int how) {
    update<Executor> open = tested.start();
    for (const ready_tensor& each : list) {
      if (each.tensor.extents.rank() != 2) continue;
      const std::int64_t rows = each.tensor.extents.rows(), cols = each.tensor.extents.cols();
      for (std::int64_t start = 0; start < (how == 2 ? 2 : 1);
           ++start)  // an aborted update ends with holes in its books
        for (std::int64_t cell = start; cell < rows * cols; cell += 2) {
          tensor_ref one = each.tensor;
          one.extents = {1, 1};
          one.data = static_cast<const std::byte*>(one.data) + cell * bytes_of(one.type);
          must(open.load(each.id, one, {{cell / cols, cell % cols}, {1, 1}}));
        }
    }
    if (how == 0) return;  // the destructor aborts
    if (how == 1) {
      must(open.abort());
      return;
    }
    CHECK(!open.finish().ok());  // a list of what is missing
    for (const ready_tensor& each : list)
      if (each.tensor.extents.rank() != 2) must(open.load(each.id, each.tensor));
    must(open.retract(list[0].name));
    must(open.load(list[0].id, list[0].tensor));
    must(open.finish());
  };
  for (int how = 0; how < 3; ++how) run(how);
  for (int how = 0; how < 3; ++how) {
    const std::int64_t before = heap_now().bytes;
    run(how);
    CHECK(heap_now().bytes == before);
  }
  tested.demand_cold(a);
}

TEST_CASE_TEMPLATE_DEFINE("law 9: heap and device memory are flat over 200 alternating updates", Executor,
                          bounded_flat) {
  engine<Executor> tested(many_layers(8));
  const auto a = ready(tested, random_checkpoint(tested.layers(), 1, stored_as::fp8));
  const auto b = ready(tested, random_checkpoint(tested.layers(), 2, stored_as::mixed));
  std::int64_t flat = 0;
  for (int i = 0; i < 200; ++i) {
    {
      update<Executor> open = tested.start({.detect_changes = i % 3 == 0});
      for (const ready_tensor& each : i % 2 == 0 ? a : b) must(open.load(each.id, each.tensor));
      must(open.finish());
      CHECK(open.report().peak_extra_device_bytes == 0);
    }
    if (i == 9) flat = heap_now().bytes;
    if (i > 9) CHECK(heap_now().bytes == flat);
  }
  audit_result audited;
  must(tested.model().audit(digest_list{}, {}, &audited));
  CHECK(audited.memory_growth == 0);
}

TEST_CASE_TEMPLATE_DEFINE("law 9: a replayed update takes nothing from the heap, and plans are flat", Executor, bounded_replay) {
  engine<Executor> tested(many_layers(40));
  const auto all = random_checkpoint(tested.layers(), 1, stored_as::fp8);
  for (const bool numbered : {false, true}) {
    std::vector<test_bucket> buckets;
    for (const auto& [name, value] : all) {
      if (buckets.empty() || buckets.back().parcels.size() == 20) buckets.emplace_back();
      buckets.back().add(whole_parcel(name, value), 16);
      if (numbered) buckets.back().manifest = buckets.size();
    }
    std::vector<placed_bucket<Executor>> placed;
    for (const test_bucket& each : buckets) placed.emplace_back(tested.memory(), each, all, 0);
    std::int64_t flat = 0;
    for (int i = 0; i < 12; ++i) {
      const bool is_ordinary = i % 4 == 3;  // leaves the plan half way
      update<Executor> open = tested.start();
      const std::int64_t before = heap_now().allocations;
      for (std::size_t b = 0; b < placed.size(); ++b)
        must(is_ordinary && b == 3 ? open.load(placed[b].pieces()) : open.load(placed[b].get()));
      must(open.finish());
      if (i > 0 && !is_ordinary) CHECK(heap_now().allocations == before);
      const auto replayed = static_cast<std::size_t>(open.report().replayed_buckets);
      CHECK(replayed == (i == 0 ? 0 : is_ordinary ? 3 : placed.size()));
      CHECK(open.report().peak_extra_device_bytes == 0);
      open = {};
      if (i == 3) flat = heap_now().bytes;
      if (i > 3) CHECK(heap_now().bytes == flat);
    }
    tested.demand_cold(all);
  }
}

TEST_CASE_TEMPLATE_DEFINE("a refused load with absurd extents allocates no more than its message", Executor,
                          bounded_absurd) {
  engine<Executor> tested(small_model());
  update<Executor> open = tested.start();
  const auto huge = std::int64_t{1} << 40;
  std::byte nothing[8] = {};
  for (const shape& extents :
       {shape{huge, huge}, shape{huge, 7}, shape{INT64_MAX}, shape{-1, 7}, shape{INT64_MIN, 1}}) {
    const std::int64_t before = heap_now().bytes;
    CHECK(open.load("q.weight", {.data = nothing, .type = dtype::fp8_e4m3, .extents = extents}).code ==
          error_code::wrong_shape);
    CHECK(open.load("nobody", {.data = nothing, .type = dtype::fp8_e4m3, .extents = extents}).code ==
          error_code::unknown_name);
    CHECK(heap_now().bytes - before < 1000);
  }
}

}  // namespace wreload::test
