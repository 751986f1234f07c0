// Bundles (one checkpoint tensor for all experts) and shared experts (one more slot): against the same bytes sent as
// one tensor per expert.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layouts/fp8_block_moe.hpp>
#include <wreload/layouts/fp8_dequant_moe.hpp>
#include <wreload/layouts/nvfp4_moe.hpp>

#include "../property.hpp"
#include "layout_engine.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

using engine = wr::test::layout_engine<wr::host_executor>;
using bytes = std::vector<std::byte>;

constexpr std::int64_t inner = 12, hidden = 9;  // blocks of 2 x 3: gate and up end inside none

struct sent {
  std::string name = {};
  wr::dtype type = wr::dtype::none;
  wr::shape extents = {};
  bytes data = {};

  wr::tensor_ref view() const { return {.data = data.data(), .type = type, .extents = extents}; }
};

bytes random_bytes(std::int64_t count, std::uint32_t& state, std::uint32_t mask = 0xFF) {
  bytes made;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    made.push_back(static_cast<std::byte>(state >> 24U & mask));
  }
  return made;
}

/// The weights and grids of one module of every expert, one behind the other.
struct stacked_module {
  std::string name = {};
  std::int64_t rows = 0, cols = 0;
  bytes weight = {}, scale = {};

  std::int64_t grid_rows() const { return wr::ceil_div(rows, 2); }
  std::int64_t grid_cols() const { return wr::ceil_div(cols, 3); }
};

stacked_module make_module(std::string name, std::int64_t rows, std::int64_t cols, std::int64_t experts, std::uint32_t& state) {
  stacked_module made{.name = std::move(name), .rows = rows, .cols = cols};
  made.weight = random_bytes(experts * rows * cols, state);
  made.scale = random_bytes(experts * made.grid_rows() * made.grid_cols() * 4, state, 0x3F);
  return made;
}

bytes slice(const bytes& of, std::int64_t begin, std::int64_t count) {
  return bytes(of.begin() + begin, of.begin() + begin + count);
}

/// One tensor per expert: a fused module is cut into gate and up.
std::vector<sent> per_expert(const std::vector<stacked_module>& modules, std::int64_t experts, const std::string& last = {}) {
  std::vector<sent> all;
  for (const stacked_module& module : modules)
    for (std::int64_t e = 0; e < experts; ++e) {
      const bool fused = module.name == "gate_up_proj";
      const std::int64_t parts = fused ? 2 : 1, rows = module.rows / parts, grid = wr::ceil_div(rows, 2);
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::string owner = e + 1 == experts && !last.empty() ? last : "experts." + std::to_string(e);
        const std::string name = owner + "." + (!fused ? module.name : part == 0 ? "gate_proj" : "up_proj");
        all.push_back({name + ".weight", wr::dtype::fp8_e4m3, {rows, module.cols},
                       slice(module.weight, (e * parts + part) * rows * module.cols, rows * module.cols)});
        const std::int64_t size = grid * module.grid_cols() * 4;
        all.push_back({name + ".weight_scale_inv", wr::dtype::fp32, {grid, module.grid_cols()},
                       slice(module.scale, (e * parts + part) * size, size)});
      }
    }
  return all;
}

std::vector<sent> bundled(const std::vector<stacked_module>& modules, std::int64_t experts) {
  std::vector<sent> all;
  for (const stacked_module& module : modules) {
    const std::string name = "experts." + module.name;
    all.push_back({name + ".weight", wr::dtype::fp8_e4m3, {experts, module.rows, module.cols}, module.weight});
    all.push_back({name + ".weight_scale_inv", wr::dtype::fp32, {experts, module.grid_rows(), module.grid_cols()}, module.scale});
  }
  return all;
}

wr::extents sizes_of(const wr::expert_slots& slots) {
  return {.shards = {{.module = "gate_proj", .rows = inner, .cols = hidden},
                     {.module = "up_proj", .rows = inner, .cols = hidden},
                     {.module = "down_proj", .rows = hidden, .cols = inner, .split = wr::parallel::row}},
          .experts = slots};
}

/// Gate and up in one tensor, or in two.
wr::extents bundled_sizes(const wr::expert_slots& slots, bool fused) {
  wr::extents sizes = sizes_of(slots);
  for (wr::shard& part : sizes.shards) part.bundle = part.module;
  if (!fused) return sizes;
  for (std::size_t i = 0; i < 2; ++i) {
    sizes.shards[i].bundle = "gate_up_proj";
    sizes.shards[i].tensor_rows = 2 * inner;
    sizes.shards[i].tensor_row_begin = static_cast<std::int64_t>(i) * inner;
  }
  return sizes;
}

std::vector<stacked_module> modules_of(bool fused, std::int64_t experts, std::uint32_t seed) {
  std::vector<stacked_module> made;
  if (fused) {
    made.push_back(make_module("gate_up_proj", 2 * inner, hidden, experts, seed));
  } else {
    made.push_back(make_module("gate_proj", inner, hidden, experts, seed));
    made.push_back(make_module("up_proj", inner, hidden, experts, seed));
  }
  made.push_back(make_module("down_proj", hidden, inner, experts, seed));
  return made;
}

template <class Layout>
std::map<std::string, bytes> loaded(const wr::extents& sizes, const std::vector<sent>& tensors) {
  engine to;
  to.add<Layout>("experts", sizes);
  wr::test::must(to.model().seal());
  auto update = to.start();
  for (const sent& each : tensors) wr::test::must(update.load(each.name, each.view()));
  wr::test::must(update.finish());
  return to.image();
}

template <class Layout>
void check_bundles(int most_ranks) {
  property("a bundle lands as its experts do", [most_ranks] {
    const bool fused = *rc::gen::arbitrary<bool>();
    const auto total = *rc::gen::inRange<std::int64_t>(1, 5);
    wr::expert_slots slots{total, *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, total))};
    const int ranks = *rc::gen::element(1, 2, most_ranks);
    const wr::tensor_parallel tp{ranks, *rc::gen::inRange(0, ranks)};
    const auto modules = modules_of(fused, total, *rc::gen::arbitrary<std::uint32_t>());
    const auto one = loaded<Layout>(sizes_of(slots).cut(wr::parallel::column, tp), per_expert(modules, total));
    const auto other = loaded<Layout>(bundled_sizes(slots, fused).cut(wr::parallel::column, tp), bundled(modules, total));
    RC_ASSERT(one == other);
  });
}

}  // namespace

TEST_CASE("bundles: dequantised experts") { check_bundles<wr::Fp8DequantMoeOf<2, 3>>(4); }
TEST_CASE("bundles: kept experts") { check_bundles<wr::Fp8BlockMoeOf<2, 3>>(2); }

TEST_CASE("bundles come in boxes of whole experts, inside one expert, or across some, with any strides") {
  constexpr std::int64_t total = 3;
  const auto modules = modules_of(true, total, 7);
  const auto whole = bundled(modules, total);
  const auto slots = wr::expert_slots::all(total);
  const auto wanted = loaded<wr::Fp8DequantMoeOf<2, 3>>(bundled_sizes(slots, true), whole);
  engine to;
  to.add<wr::Fp8DequantMoeOf<2, 3>>("experts", bundled_sizes(slots, true));
  wr::test::must(to.model().seal());
  auto update = to.start();
  for (const sent& each : whole) {
    const std::int64_t rows = each.extents[1], cols = each.extents[2], element = wr::bytes_of(each.type);
    const auto load = [&](const wr::shape& first, const wr::shape& size) {  // a view into the whole tensor
      const std::int64_t offset = (first[0] * rows + first[1]) * cols + first[2];
      return update.load(each.name, {.data = each.data.data() + offset * element, .type = each.type, .extents = size,
                                     .strides = {rows * cols, cols, 1}}, {first, size});
    };
    wr::test::must(load({0, 0, 0}, {2, 1, cols}));
    wr::test::must(load({0, 1, 0}, {2, rows - 1, 1}));
    wr::test::must(load({0, 1, 1}, {1, rows - 1, cols - 1}));
    wr::test::must(load({1, 1, 1}, {1, rows - 1, cols - 1}));
    CHECK(update.finish().code == wr::error_code::incomplete);
    CHECK(load({1, 0, 0}, {2, rows, cols}).code == wr::error_code::duplicate);
    CHECK(load({2, 0, 0}, {2, rows, cols}).code == wr::error_code::wrong_shape);
    wr::test::must(load({2, 0, 0}, {1, rows, cols}));
  }
  wr::test::must(update.finish());
  CHECK(to.image() == wanted);
}

TEST_CASE("bundles: what is not one is refused by name") {
  const auto refusal = [](const auto& specs, const wr::extents& sizes) {
    wr::layer_plan plan;
    return wr::plan_layer(specs, "experts", sizes, plan).message();
  };
  auto sizes = bundled_sizes(wr::expert_slots::all(2), false);
  const std::string scalars = refusal(wr::Nvfp4Moe::specs, sizes);
  CHECK(scalars.find("proj: expected") != std::string::npos);
  sizes.experts->shared = "shared_experts";
  CHECK(refusal(wr::Fp8BlockMoeOf<2, 3>::specs, sizes).find("gate_proj: expected a bundle in a stacked layer") !=
        std::string::npos);
  sizes.experts.reset();
  CHECK(!refusal(wr::Fp8BlockMoeOf<2, 3>::specs, sizes).empty());
}

TEST_CASE("a shared expert is one more slot, under its own name") {
  constexpr std::int64_t total = 3;
  for (const bool fused : {false, true}) {
    const auto modules = modules_of(fused, total + 1, 11);
    const auto wanted = loaded<wr::Fp8BlockMoeOf<2, 3>>(sizes_of({total + 1, {2, 0, 3}}), per_expert(modules, total + 1));
    wr::expert_slots slots{total, {2, 0}};
    slots.shared = "mlp.shared_experts";
    CHECK(loaded<wr::Fp8BlockMoeOf<2, 3>>(sizes_of(slots), per_expert(modules, total + 1, slots.shared)) == wanted);
  }
}

TEST_CASE("a shared NVFP4 expert counts for the maximum of the input scales") {
  wr::extents sizes{.shards = {{.module = "gate_proj", .rows = 32, .cols = 16},
                               {.module = "up_proj", .rows = 32, .cols = 16},
                               {.module = "down_proj", .rows = 32, .cols = 16}},
                    .experts = wr::expert_slots{2, {1}}};
  sizes.experts->shared = "shared";
  engine to;
  to.add<wr::Nvfp4Moe>("experts", sizes);
  wr::test::must(to.model().seal());
  auto update = to.start();
  std::uint32_t state = 3;
  float input = 1.0F;
  for (const std::string owner : {"experts.0", "experts.1", "shared"})
    for (const std::string module : {".gate_proj", ".up_proj", ".down_proj"}) {
      const bytes weight = random_bytes(512, state), scale = random_bytes(64, state);
      const float second = 0.5F;
      input *= 2.0F;
      const auto load = [&](const char* leaf, const void* data, wr::dtype type, const wr::shape& dims) {
        wr::test::must(update.load(owner + module + leaf, {.data = data, .type = type, .extents = dims}));
      };
      load(".weight", weight.data(), wr::dtype::u8, {32, 16});
      load(".weight_scale", scale.data(), wr::dtype::fp8_e4m3, {32, 2});
      load(".weight_scale_2", &second, wr::dtype::fp32, {});
      load(".input_scale", &input, wr::dtype::fp32, {});
    }
  wr::test::must(update.finish());
  const bytes alphas = to.bytes("experts.g1_alphas");
  REQUIRE(alphas.size() == 2 * sizeof(float));
  float first = 0;
  std::memcpy(&first, alphas.data(), sizeof first);
  CHECK(first == 128.0F);  // 2^8, the shared up_proj's, times 0.5
}
