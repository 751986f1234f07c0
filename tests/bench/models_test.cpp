// bench/models.hpp against the published totals (models.md 1 to 3).
#include <array>
#include <cstdint>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>

#include "../../bench/models.hpp"

namespace wr = wreload;
namespace models = bench::models;

namespace {

/// Counts tensors and bytes; collects the tensors' names and those that layers read.
struct counter {
  std::int64_t tensors = 0, bytes = 0;
  std::array<std::int64_t, wr::dtype_count> elements = {};
  std::set<std::string> sent = {}, read = {};

  void tensor(const std::string& name, wr::dtype type, const wr::shape& extents) {
    ++tensors;
    bytes += extents.elements() * wr::bytes_of(type);
    elements[static_cast<std::size_t>(type)] += extents.elements();
    sent.insert(name + " " + to_string(extents));
  }
  template <class Layout>
  void layer(const std::string& name, const wr::extents& sizes) {
    wr::layer_plan plan;
    const wr::status refused = wr::plan_layer(Layout::specs, name, sizes, plan);
    REQUIRE_MESSAGE(refused.ok(), refused.message());
    for (const wr::planned_source& source : plan.sources) read.insert(source.name + " " + to_string(source.extents));
  }
  std::int64_t of(wr::dtype type) const { return elements[static_cast<std::size_t>(type)]; }
};

template <template <class> class Model>
counter layer_of(int index, int ranks = 8) {
  counter counted;
  Model<counter>(counted, {ranks, 0}).layer(index);
  CHECK(counted.sent == counted.read);
  CHECK(static_cast<std::int64_t>(counted.sent.size()) == counted.tensors);
  return counted;
}
template <template <class> class Model>
counter ends_of() {
  counter counted;
  Model<counter> described(counted, {8, 0});
  described.embedding();
  described.head();
  CHECK(counted.sent == counted.read);
  return counted;
}

constexpr auto fp8 = wr::dtype::fp8_e4m3, bf16 = wr::dtype::bf16, fp32 = wr::dtype::fp32;

}  // namespace

TEST_CASE("GLM-5.3-Flash: tensors, bytes and elements of each kind of layer; what is sent is what layers read") {
  const auto check = [](const counter& counted, std::int64_t tensors, std::int64_t bytes, std::int64_t codes,
                        std::int64_t halves, std::int64_t floats) {
    CHECK(counted.tensors == tensors);
    CHECK(counted.bytes == bytes);
    CHECK(counted.of(fp8) == codes);
    CHECK(counted.of(bf16) == halves);
    CHECK(counted.of(fp32) == floats);
  };
  for (const int ranks : {1, 8}) {
    check(layer_of<models::glm>(0, ranks), 29, 428'102'360, 150'994'944, 138'518'656, 17'526);
    check(layer_of<models::glm>(3, ranks), 1762, 7'427'838'808, 7'373'586'432, 26'225'408, 450'390);
    check(layer_of<models::glm>(4, ranks), 1759, 7'554'129'752, 7'272'923'136, 139'698'304, 452'502);
  }
  check(ends_of<models::glm>(), 3, 2'537'562'112, 0, 1'268'781'056, 0);
}

TEST_CASE("GLM-5.3-Flash: all layers and the ends are the published checkpoint without layer 45 and the vision tower") {
  counter all = ends_of<models::glm>();
  models::glm<counter> described(all, {8, 0});
  for (int i = 0; i < models::glm_dims.layers; ++i) described.layer(i);
  CHECK(all.tensors == 76'108 - 1760 - 347);
  CHECK(all.bytes == 328'326'771'576 - 7'493'399'168 - 1'127'254'016);
}

TEST_CASE("DeepSeek-V3: tensors and bytes of each kind of layer, and of the model without MTP") {
  const counter dense = layer_of<models::deepseek>(2), moe = layer_of<models::deepseek>(3),
                ends = ends_of<models::deepseek>();
  CHECK(dense.tensors == 20);
  CHECK(dense.bytes == 583'642'336);
  CHECK(moe.tensors == 1558);
  CHECK(moe.bytes == 11'511'947'488);
  CHECK(3 * dense.tensors + 58 * moe.tensors + ends.tensors == 90'427);
  CHECK(3 * dense.bytes + 58 * moe.bytes + ends.bytes == 688'574'839'360 - 15'424'227'552);
}

TEST_CASE("Kimi-K2.5: tensors and bytes of each kind of layer, of the vision tower and of the whole") {
  const counter dense = layer_of<models::kimi>(0), moe = layer_of<models::kimi>(1), ends = ends_of<models::kimi>();
  counter vision;
  models::kimi<counter>(vision, {8, 0}).vision();
  CHECK(dense.tensors == 21);
  CHECK(dense.bytes == 425'230'360);
  CHECK(moe.tensors == 4631);
  CHECK(moe.bytes == 9'745'246'744);
  CHECK(vision.tensors == 335);
  CHECK(vision.bytes == 942'287'840);
  CHECK(dense.tensors + 60 * moe.tensors + ends.tensors + vision.tensors == 278'219);
  CHECK(dense.bytes + 60 * moe.bytes + ends.bytes + vision.bytes == 590'779'957'656);
}

TEST_CASE("Kimi-K2.5 with widths divided by 16 has the same tensors, smaller") {
  counter whole, less;
  models::kimi<counter>(whole, {8, 0}).layer(1);
  models::kimi<counter>(less, {8, 0}, models::kimi_dims.divided(16)).layer(1);
  CHECK(less.tensors == whole.tensors);
  CHECK(less.sent == less.read);
  CHECK(less.sent.contains("language_model.model.layers.1.mlp.experts.383.down_proj.weight [448, 64]"));
}
