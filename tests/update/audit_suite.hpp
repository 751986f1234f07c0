#pragma once
/// The audit: against a model, a snapshot, or digests of this sharding or another.

#include <numeric>

#include "../property.hpp"
#include "generators.hpp"
#include "layout_engine.hpp"

namespace wreload::test {

/// Changes one bit of the element at (row, col) of a tensor, as a stray write would.
template <class Executor>
void flip(engine<Executor>& tested, std::string_view name, std::int64_t row, std::int64_t col) {
  const auto& tensor = tested.tensor(name);
  const std::int64_t element = bytes_of(tensor.plan.type);
  std::byte* at = tensor.data + row * tensor.row_stride_bytes + col * element + (element - 1);
  std::byte value;
  tested.memory().read(&value, at, 1);
  value ^= std::byte{8};
  tested.memory().write(at, &value, 1);
}

/// The three ways to audit, each against what the model was right after `reload`.
template <class Executor, class Check>
void each_audit(engine<Executor>& tested, engine<Executor>& twin, const model_snapshot& snapshot,
                const digest_list& digests, Check&& check) {
  audit_result found;
  const auto addresses = tested.addresses();
  must(tested.model().audit(twin.model(), {.list = addresses}, &found));
  check(found, false);
  must(tested.model().audit(snapshot, {.list = addresses}, &found));
  check(found, false);
  must(tested.model().audit(digests, {.list = addresses}, &found));
  check(found, true);
}

TEST_CASE_TEMPLATE_DEFINE("audit: equal is clean, and names the first differing element otherwise", Executor,
                          audit_difference) {
  engine<Executor> tested(small_model(), 1);
  engine<Executor> twin(small_model(), 3);  // the same layers, other strides
  const auto all = random_checkpoint(tested.layers(), 1, stored_as::mixed);
  tested.reload(random_checkpoint(tested.layers(), 2));
  tested.reload(all);
  twin.reload(all);
  model_snapshot snapshot;
  must(tested.model().snapshot(&snapshot));
  CHECK(snapshot.tensors.size() == 5);
  for (const auto& each : snapshot.tensors) CHECK(each.bytes == tested.dense(each.name));
  digest_list digests;
  must(twin.model().digests(&digests));
  each_audit(tested, twin, snapshot, digests, [](const audit_result& found, bool) {
    CHECK(found.clean());
    CHECK(found.compared == 5);
    CHECK(found.retired == 2);
  });
  struct place {
    const char* name;
    std::int64_t row, col;
  };
  for (const place& at :
       {place{"qkv.weight", 0, 0}, place{"qkv.weight", 8, 6}, place{"qkv.weight", 5, 3}, place{"o_proj.weight", 5, 0},
        place{"norm.weight", 6, 0}, place{"bias", 1, 0}, place{"step", 0, 0}}) {
    CAPTURE(at.name);
    flip(tested, at.name, at.row, at.col);
    each_audit(tested, twin, snapshot, digests, [&](const audit_result& found, bool by_digest) {
      CHECK(!found.clean());
      REQUIRE(found.mismatched.size() == 1);
      CHECK(found.mismatched[0].name == at.name);
      if (!by_digest) CHECK(found.mismatched[0].row == at.row);
      if (!by_digest) CHECK(found.mismatched[0].col == at.col);
      CHECK(found.moved.empty());
      CHECK(found.memory_growth == 0);
    });
    flip(tested, at.name, at.row, at.col);
  }
  // Several at once; each tensor once, with its first element.
  flip(tested, "qkv.weight", 7, 1);
  flip(tested, "qkv.weight", 2, 4);
  flip(tested, "bias", 2, 0);
  each_audit(tested, twin, snapshot, digests, [](const audit_result& found, bool by_digest) {
    REQUIRE(found.mismatched.size() == 2);
    if (by_digest) return;
    CHECK(found.mismatched[0].row == 2);
    CHECK(found.mismatched[0].col == 4);
  });
}

TEST_CASE_TEMPLATE_DEFINE("audit: retired tensors and gaps are outside the comparison, pads are inside", Executor,
                          audit_outside) {
  reference::layer padded = linear("x", {whole_shard("x", 4)}, 5);
  padded.shards[0].checkpoint_rows = padded.shards[0].tensor_rows = 3;
  engine<Executor> tested({padded}, 2), twin({padded}, 0);
  const auto all = random_checkpoint(tested.layers(), 1);
  tested.reload(all);
  twin.reload(all);
  audit_result found;
  flip(tested, "x.weight_scale_inv", 0, 0);
  must(tested.model().audit(twin.model(), {}, &found));
  CHECK(found.clean());
  CHECK(found.retired == 1);
  CHECK(found.compared == 1);
  flip(tested, "x.weight", 3, 2);
  must(tested.model().audit(twin.model(), {}, &found));
  REQUIRE(found.mismatched.size() == 1);
  CHECK(found.mismatched[0].row == 3);
  CHECK(found.mismatched[0].col == 2);
}

TEST_CASE_TEMPLATE_DEFINE("audit: what the other side lacks is not called equal", Executor, audit_not_comparable) {
  engine<Executor> tested(small_model());
  engine<Executor> less({linear("o_proj", 6, 7), plain("norm.weight", {8}), plain("bias", {3}, dtype::i32)});
  tested.reload(random_checkpoint(tested.layers(), 1));
  audit_result found;
  must(tested.model().audit(less.model(), {}, &found));
  CHECK(found.not_comparable == 4);  // qkv and step are absent, norm has another size, bias another dtype
  CHECK(!found.clean());
  must(tested.model().audit(model_snapshot{}, {}, &found));
  CHECK(found.not_comparable == 5);
  must(tested.model().audit(digest_list{}, {}, &found));
  CHECK(found.not_comparable > 0);
  CHECK(!found.clean());
}

/// A model cut for one rank; whole where `size` is 1. Big enough for several digest tiles.
inline std::vector<reference::layer> cut_model(int size, int rank) {
  using reference::cut;
  std::vector<reference::layer> layers = {
      linear("qkv", {whole_shard("q", 512, cut::column), whole_shard("kv", 8, cut::column), whole_shard("f", 3)}, 6),
      linear("o", {whole_shard("o", 5, cut::row)}, 4112, 128, 128), plain("norm", {7}), plain("vocab", {520, 2}),
      plain("bias", {4})};
  layers[0].shards[1].parts = size > 2 ? 2 : 0;  // kv heads shared by ranks
  layers[3].shards[0].split = cut::column;
  layers[3].shards[0].checkpoint_rows = layers[3].shards[0].tensor_rows = 517;
  for (reference::layer& layer : layers) {
    layer.tp_size = size;
    layer.tp_rank = rank;
  }
  return layers;
}

TEST_CASE_TEMPLATE_DEFINE("audit: digests of another tensor-parallel size, merged over its ranks", Executor,
                          audit_shardings) {
  const auto all = random_checkpoint(cut_model(1, 0), 1, stored_as::mixed);
  const auto digests_of = [&](int size, const reference::checkpoint& from, int skip = -1) {
    digest_list merged;
    for (int rank = 0; rank < size; ++rank) {
      if (rank == skip) continue;
      engine<Executor> part(cut_model(size, rank), rank % 2);
      part.reload(from);
      must(part.model().digests(&merged));
    }
    return merged;
  };
  engine<Executor> whole(cut_model(1, 0), 1);
  whole.reload(all);
  audit_result found;
  for (const int size : {1, 2, 4}) {
    CAPTURE(size);
    must(whole.model().audit(digests_of(size, all), {}, &found));
    std::string names;
    for (const mismatch& each : found.mismatched) names += each.name + " ";
    CHECK_MESSAGE(found.clean(), "mismatched: " << names << "; not comparable: " << found.not_comparable);
    // One element of the other side differs.
    for (const char* name : {"q.weight", "kv.weight", "f.weight", "o.weight", "norm", "vocab", "bias"}) {
      auto other = all;
      auto& bytes = other.at(name).bytes;
      bytes[bytes.size() - 1] ^= std::byte{16};
      must(whole.model().audit(digests_of(size, other), {}, &found));
      CHECK_MESSAGE(found.mismatched.size() == 1, std::string(name));
    }
  }
  must(whole.model().audit(digests_of(4, all, 3), {}, &found));  // a rank is missing: not called equal
  CHECK(found.not_comparable > 0);
  CHECK(!found.clean());
}

TEST_CASE_TEMPLATE_DEFINE("audit: equal and unequal checkpoints of random models", Executor, audit_random) {
  property("model, snapshot and digests agree about equality", [] {
    const std::vector<reference::layer> layers = draw_model();
    engine<Executor> tested(layers, 1), twin(layers, 0);
    const auto a = random_checkpoint(layers, draw_seed(), stored_as::mixed);
    tested.reload(a);
    twin.reload(a);
    model_snapshot snapshot;
    digest_list digests;
    must(twin.model().snapshot(&snapshot));
    must(twin.model().digests(&digests));
    each_audit(tested, twin, snapshot, digests,
               [](const audit_result& found, bool) { demand(found.clean(), "equal models are not called clean"); });
    tested.reload(random_checkpoint(layers, draw_seed(), stored_as::mixed));
    std::size_t differing = 0;
    for (std::size_t t = 0; t < tested.tensors().size(); ++t)
      if (!tested.tensors()[t].plan.retired)
        differing += tested.dense(tested.tensors()[t]) != twin.dense(twin.tensors()[t]);
    each_audit(tested, twin, snapshot, digests, [&](const audit_result& found, bool by_digest) {
      // Digests may split a replicated part into two that cannot be added up; that is not called clean either.
      demand(by_digest ? found.clean() == (differing == 0) : found.mismatched.size() == differing,
             std::to_string(found.mismatched.size()) + " mismatched, " + std::to_string(differing) + " differ");
    });
  });
}

}  // namespace wreload::test
