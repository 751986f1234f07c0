#pragma once
/// Names: spellings, ignored and foreign ones, unknown ones, ids.

#include "layout_engine.hpp"

namespace wreload::test {

TEST_CASE_TEMPLATE_DEFINE("Quark's weight_scale for weight_scale_inv; both in one update is an error", Executor,
                          names_spelling) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  for (const bool quark : {true, false, true}) {
    update<Executor> open = tested.start();
    for (const auto& [name, value] : all) {
      const bool scale = name.ends_with("_scale_inv");
      const std::string spelled = scale && quark ? name.substr(0, name.size() - 4) : name;
      must(open.load(spelled, tested.place(value)));
    }
    const char* other = quark ? "q.weight_scale_inv" : "q.weight_scale";
    const char* used = quark ? "q.weight_scale" : "q.weight_scale_inv";
    const status refused = open.load(other, tested.place(all.at("q.weight_scale_inv")));
    check_refused(refused, error_code::duplicate, other);
    CHECK(refused.message().find(used) != std::string::npos);
    must(open.finish());
    tested.demand_cold(all);
  }
  // Even in parts, and even the first part refused for another reason leaves the spelling free.
  update<Executor> open = tested.start();
  check_refused(open.load("q.weight_scale", tested.place(floats(2, 1.0F))), error_code::wrong_shape);
  must(tested.send(open, all));
  must(open.finish());
  // Taken back, it may come in the other spelling.
  update<Executor> again = tested.start();
  must(tested.send(again, all));
  must(again.retract("q.weight_scale"));
  must(again.load("q.weight_scale", tested.place(all.at("q.weight_scale_inv"))));
  must(again.finish());
  tested.demand_cold(all);
}

TEST_CASE_TEMPLATE_DEFINE("a part under one spelling, the rest under the other", Executor, names_half_spelling) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  const reference::tensor& scale = all.at("q.weight_scale_inv");  // [3, 3]
  const auto row = [&](std::size_t at) {
    return reference::tensor{dtype::fp32,
                             {1, 3},
                             {scale.bytes.begin() + static_cast<std::ptrdiff_t>(at * 12),
                              scale.bytes.begin() + static_cast<std::ptrdiff_t>(at * 12 + 12)}};
  };
  update<Executor> open = tested.start();
  must(open.load("q.weight_scale", tested.place(row(0)), {{0, 0}, {1, 3}}));
  check_refused(open.load("q.weight_scale_inv", tested.place(row(1)), {{1, 0}, {1, 3}}), error_code::duplicate,
                "q.weight_scale_inv");
  must(open.load("q.weight_scale", tested.place(row(1)), {{1, 0}, {1, 3}}));
  must(open.load("q.weight_scale", tested.place(row(2)), {{2, 0}, {1, 3}}));
  for (const auto& [name, value] : all)
    if (name != "q.weight_scale_inv") must(open.load(name, tested.place(value)));
  must(open.finish());
  tested.demand_cold(all);
}

TEST_CASE_TEMPLATE_DEFINE("ignored and foreign names are a success and counted; any other unknown one is an error",
                          Executor, names_patterns) {
  engine<Executor> tested(small_model(), 0, [](wr::model<Executor>& model) {
    model.ignore("*.rotary_emb.inv_freq");
    model.ignore("mlp.gate.*");
    model.foreign("layers.45.*");
  });
  const auto all = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  const auto stray = halves(5, 1);
  must(open.load("layers.3.rotary_emb.inv_freq", tested.place(stray)));
  must(open.load("mlp.gate.weight", tested.place(stray)));
  must(open.load("layers.45.norm.weight", tested.place(stray)));
  must(open.load("layers.45.norm.weight", tested.place(stray)));  // nobody's bytes: not a duplicate
  for (const char* unknown :
       {"mlp.gate_proj.weight", "mlp.gate", "layers.4.norm.weight", "layers.450.norm.weight", "rotary_emb.inv_freq",
        "layers.3.rotary_emb.inv_freqs", "", "norm.weigh", "norm.weight ", "model.norm.weight"}) {
    CAPTURE(unknown);
    check_refused(open.load(unknown, tested.place(stray)), error_code::unknown_name, unknown);
  }
  CHECK(open.report().ignored.tensors == 2);
  CHECK(open.report().ignored.bytes == 20);
  CHECK(open.report().foreign.tensors == 2);
  CHECK(open.report().loaded.tensors == 0);
  must(tested.send(open, all));
  must(open.finish());
  tested.demand_cold(all);
  // A pattern does not hide a tensor of the model, and may be declared.
  engine<Executor> wide(small_model(), 0, [](wr::model<Executor>& model) {
    model.ignore("*");
    model.foreign("*");
  });
  wide.reload(all);
  wide.demand_cold(all);
  const std::vector<std::string_view> names = {"norm.weight", "somebody.else"};
  update<Executor> partial = wide.start_partial(names);
  check_refused(partial.finish(), error_code::incomplete, "norm.weight");
  must(wide.send(partial, all, "norm.weight"));
  must(partial.finish());
}

TEST_CASE_TEMPLATE_DEFINE("pattern and name, character by character", Executor, names_matching) {
  CHECK(matches("*", ""));
  CHECK(matches("", ""));
  CHECK(!matches("", "a"));
  CHECK(matches("a*b*c", "a.b.bb.c"));
  CHECK(!matches("a*b*c", "a.b.bb"));
  CHECK(matches("**a**", "bab"));
  CHECK(matches("*.experts.*.weight", "model.layers.3.mlp.experts.17.up_proj.weight"));
  CHECK(!matches("mlp.gate", "mlp.gate_proj"));
  CHECK(!matches("a.b", "a_b"));
  CHECK(!matches("A", "a"));
}

TEST_CASE_TEMPLATE_DEFINE("ids stand for names, for the life of the model", Executor, names_ids) {
  engine<Executor> tested(small_model());
  CHECK(!tested.model().find("nobody").is_known());
  CHECK(!tested.model().find("").is_known());
  CHECK(!tested.model().find("qkv.weight").is_known());  // a runtime name
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  std::map<std::string, tensor_id> ids;
  for (const auto& entry : a) ids[entry.first] = tested.model().find(entry.first);
  for (const auto* all : {&a, &b}) {
    update<Executor> open = tested.start();
    std::vector<piece> batch;
    for (const auto& [name, value] : *all)
      if (name < "n")
        must(open.load(ids.at(name), tested.place(value)));
      else
        batch.push_back({.tensor = tested.place(value), .id = ids.at(name)});
    must(open.load(batch));
    check_refused(open.load(tested.model().find("q.weight_scale"), tested.place(all->at("q.weight_scale_inv"))),
                  error_code::duplicate, "q.weight_scale");
    check_refused(open.load(tensor_id{}, tested.place(all->at("bias"))), error_code::unknown_name);
    must(open.finish());
    tested.demand_cold(*all);
  }
}

TEST_CASE_TEMPLATE_DEFINE("add and seal refuse names that collide", Executor, names_collide) {
  std::byte memory[256];
  {
    model<Executor> twice;
    must(twice.template add<Plain>("t", extents::tensor("t", {4}, dtype::bf16), memory));
    check_refused(twice.template add<Plain>("t", extents::tensor("u", {4}, dtype::bf16), memory + 64),
                  error_code::bad_layout, "t");
  }
  {  // one checkpoint tensor of two shapes
    model<Executor> shapes;
    must(shapes.template add<Plain>("a", extents::tensor("shared", {4}, dtype::bf16), memory));
    check_refused(shapes.template add<Plain>("b", extents::tensor("shared", {2, 2}, dtype::bf16), memory + 64),
                  error_code::bad_layout, "shared");
    must(shapes.seal());  // nothing of `b` was added
  }
  {  // a tensor whose name is another's second spelling
    model<Executor> spelled;
    must(spelled.template add<Plain>("x.weight_scale", extents::tensor("x.weight_scale", {1, 1}, dtype::fp32), memory));
    must(spelled.template add<Fp8DequantLinear>("x", extents::matrix("x", 4, 4), memory + 64, memory + 128));
    check_refused(spelled.seal(), error_code::bad_layout, "x.weight_scale");
  }
  {  // two params on the same bytes
    model<Executor> overlap;
    must(overlap.template add<Plain>("a", extents::tensor("a", {4}, dtype::bf16), memory));
    must(overlap.template add<Plain>("b", extents::tensor("b", {4}, dtype::bf16), memory + 6));
    check_refused(overlap.seal(), error_code::bad_layout, "b");
  }
  {  // interleaved in common rows: no byte shared
    model<Executor> interleaved;
    must(interleaved.template add<Plain>("a", extents::tensor("a", {4, 2}, dtype::bf16), storage(memory, 8)));
    must(interleaved.template add<Plain>("b", extents::tensor("b", {4, 2}, dtype::bf16), storage(memory + 4, 8)));
    must(interleaved.seal());
  }
  {
    model<Executor> arguments;
    check_refused(arguments.template add<Plain>("a", extents::tensor("a", {4}, dtype::bf16), nullptr),
                  error_code::bad_argument, "a");
    check_refused(arguments.template add<Plain>("a", extents::tensor("a", {4, 4}, dtype::bf16), storage(memory, 7)),
                  error_code::bad_argument, "a");
    check_refused(arguments.template add<Plain>("a", extents::tensor("a", {4}, dtype::none), memory),
                  error_code::bad_layout, "a");
  }
}

TEST_CASE_TEMPLATE_DEFINE("shards of one layer that disagree about the tensor they share are refused", Executor,
                          names_disagree) {
  std::byte memory[256];
  model<Executor> rows;
  extents sizes{.shards = {{.module = "qkv", .rows = 4, .tensor_rows = 8},
                           {.module = "qkv", .rows = 4, .tensor_rows = 9, .tensor_row_begin = 4}},
                .type = dtype::bf16};
  check_refused(rows.template add<Plain>("layer", sizes, memory), error_code::bad_layout, "qkv");
}

}  // namespace wreload::test
