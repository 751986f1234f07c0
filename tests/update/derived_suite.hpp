#pragma once
/// Derived params: arithmetic and an engine's own launchers, in order of their levels, once for what changed.

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "../property.hpp"
#include "closed_checks.hpp"
#include "failing_executor.hpp"
#include "generators.hpp"
#include "layout_engine.hpp"

namespace wreload::test {

namespace derived {
struct kv_b_proj { static constexpr std::string_view name = "weight"; };
struct scale_inv { static constexpr std::string_view name = "weight_scale_inv"; };
struct w_kc { static constexpr std::string_view name = "w_kc"; };
struct w_vc { static constexpr std::string_view name = "w_vc"; };
struct sinks { static constexpr std::string_view name = "sinks"; };
struct sinks_fp32 { static constexpr std::string_view name = "sinks_fp32"; };
struct total { static constexpr std::string_view name = "total"; };
struct a { static constexpr std::string_view name = "a"; };
struct b { static constexpr std::string_view name = "b"; };
struct c { static constexpr std::string_view name = "c"; };
struct r0 { static constexpr std::string_view name = "r0"; };
struct r1 { static constexpr std::string_view name = "r1"; };
struct r2 { static constexpr std::string_view name = "r2"; };
struct r3 { static constexpr std::string_view name = "r3"; };
struct r4 { static constexpr std::string_view name = "r4"; };
}  // namespace derived

/// A launcher that computes on host copies. `Body` has `type`, `extents(shapes)` and `compute(sources, columns of
/// the first, result)` on dense bytes; calls are counted, and the next one fails where a test says so.
template <class Executor, class Body>
struct launched {
  static constexpr dtype type = Body::type;
  static inline int calls = 0;
  static inline bool fails = false;

  static shape extents(std::span<const shape> from) { return Body::extents(from); }
  static status launch(stream_ref stream, std::span<const runtime_tensor> from, const runtime_tensor& to) {
    ++calls;
    if (std::exchange(fails, false)) return refuse(error_code::execution_failed, "launcher", "success", "a failure that the test asked for");
    std::vector<std::vector<std::byte>> sources;
    for (const runtime_tensor& each : from) {
      const std::int64_t row_bytes = each.extents.cols() * bytes_of(each.type);
      sources.emplace_back(static_cast<std::size_t>(each.extents.rows() * row_bytes));
      for (std::int64_t r = 0; r < each.extents.rows(); ++r)
        launch_memory<Executor>::read(stream, sources.back().data() + r * row_bytes, each.data + r * each.row_stride_bytes, row_bytes);
    }
    std::vector<std::byte> result(static_cast<std::size_t>(to.extents.elements() * bytes_of(to.type)));
    Body::compute(sources, from[0].extents.cols(), result);
    launch_memory<Executor>::write(stream, to.data, result.data(), static_cast<std::int64_t>(result.size()));
    return {};
  }
};

/// kv_b_proj of heads with 2 key and 3 value rows (formats.md 2.9): key rows transposed, memory order (h, l, p); value
/// rows as they are, memory order (h, v, l).
inline constexpr std::int64_t key_rows = 2, value_rows = 3, head_rows = key_rows + value_rows;
template <dtype_tag Type>
struct absorb_keys {
  static constexpr dtype type = Type::id;
  static shape extents(std::span<const shape> from) { return {from[0][0] / head_rows, from[0][1], key_rows}; }
  static void compute(const std::vector<std::vector<std::byte>>& from, std::int64_t cols, std::vector<std::byte>& to) {
    constexpr std::int64_t element = bytes_of(type);
    for (std::int64_t i = 0; i * element < static_cast<std::int64_t>(to.size()); ++i) {
      const std::int64_t row = i / (cols * key_rows) * head_rows + i % key_rows, col = i / key_rows % cols;
      std::memcpy(to.data() + i * element, from[0].data() + (row * cols + col) * element, element);
    }
  }
};
template <dtype_tag Type>
struct absorb_values {
  static constexpr dtype type = Type::id;
  static shape extents(std::span<const shape> from) { return {from[0][0] / head_rows, value_rows, from[0][1]}; }
  static void compute(const std::vector<std::vector<std::byte>>& from, std::int64_t cols, std::vector<std::byte>& to) {
    const std::int64_t row_bytes = cols * bytes_of(type);
    for (std::int64_t i = 0; i * row_bytes < static_cast<std::int64_t>(to.size()); ++i) {
      const std::int64_t row = i / value_rows * head_rows + key_rows + i % value_rows;
      std::memcpy(to.data() + i * row_bytes, from[0].data() + row * row_bytes, static_cast<std::size_t>(row_bytes));
    }
  }
};
/// An FP32 shadow of a BF16 tensor.
struct widen_all {
  static constexpr dtype type = dtype::fp32;
  static shape extents(std::span<const shape> from) { return from[0]; }
  static void compute(const std::vector<std::vector<std::byte>>& from, std::int64_t, std::vector<std::byte>& to) {
    for (std::size_t i = 0; i < to.size() / 4; ++i) std::memcpy(&to[4 * i + 2], &from[0][2 * i], 2);
  }
};
/// The sum of everything in its sources, one fp32.
struct sum_all {
  static constexpr dtype type = dtype::fp32;
  static shape extents(std::span<const shape>) { return {}; }
  static void compute(const std::vector<std::vector<std::byte>>& from, std::int64_t, std::vector<std::byte>& to) {
    float sum = 0;
    for (const auto& bytes : from)
      for (std::size_t i = 0; i < bytes.size(); i += 4) {
        float value = 0;
        std::memcpy(&value, &bytes[i], 4);
        sum += value;
      }
    std::memcpy(to.data(), &sum, 4);
  }
};

template <class Executor>
struct AbsorbedFp32
    : ParamLayout<Param<derived::kv_b_proj, StorageView<fp32>>,
                  Derived<derived::w_kc, Bind, Launch<launched<Executor, absorb_keys<fp32>>, derived::kv_b_proj>>,
                  Derived<derived::w_vc, Bind, Launch<launched<Executor, absorb_values<fp32>>, derived::kv_b_proj>>> {};
template <class Executor>
struct AbsorbedFp8
    : ParamLayout<Param<derived::kv_b_proj, StorageView<fp8_e4m3, Over<bf16>>, ScaledBy<derived::scale_inv>>,
                  Param<derived::scale_inv, BlockScale<2, 3, fp32>, Retired>,
                  Derived<derived::w_kc, Bind, Launch<launched<Executor, absorb_keys<bf16>>, derived::kv_b_proj>>,
                  Derived<derived::w_vc, Bind, Launch<launched<Executor, absorb_values<bf16>>, derived::kv_b_proj>>> {};
/// A shadow, and a total of it and of a product of its own level; listed before what they read.
template <class Executor>
struct ShadowedSinks
    : ParamLayout<Derived<derived::total, Bind, Launch<launched<Executor, sum_all>, derived::sinks_fp32, derived::r0>>,
                  Derived<derived::sinks_fp32, Bind, Launch<launched<Executor, widen_all>, derived::sinks>>,
                  Derived<derived::r0, Bind, Reciprocal<Max<derived::a, Across<shards>>>>,
                  Param<derived::sinks, StorageView<bf16>>, Param<derived::a, PerShard<fp32>, Kept>> {};

inline float float_of(const std::vector<std::byte>& bytes, std::size_t index = 0) {
  float value = 0;
  std::memcpy(&value, &bytes.at(4 * index), 4);
  return value;
}
inline reference::tensor one_float(float value) { return tensor_of<float>(dtype::fp32, {}, {value}); }

TEST_CASE_TEMPLATE_DEFINE("Launch: absorbed MLA weights, the worked numbers of formats.md 2.9", Executor, derived_absorbed) {
  layout_engine<Executor> tested;
  tested.template add<AbsorbedFp32<Executor>>("kv_b_proj", extents::matrix("kv_b_proj", 10, 4));
  must(tested.model().seal());
  std::vector<float> weight;
  for (int r = 0; r < 10; ++r)
    for (int c = 0; c < 4; ++c) weight.push_back(static_cast<float>(100 * r + c));
  for (int round = 0; round < 2; ++round) {
    update<Executor> open = tested.start();
    must(open.load("kv_b_proj.weight", tested.place(tensor_of(dtype::fp32, {10, 4}, weight))));
    must(open.finish());
    const auto equals = [&](std::string_view name, const std::vector<float>& wanted) {
      std::vector<float> found(wanted.size());
      const auto bytes = tested.bytes(name);
      REQUIRE(bytes.size() == 4 * found.size());
      std::memcpy(found.data(), bytes.data(), bytes.size());
      CHECK(found == wanted);
    };
    equals("kv_b_proj.w_kc", {0, 100, 1, 101, 2, 102, 3, 103, 500, 600, 501, 601, 502, 602, 503, 603});
    equals("kv_b_proj.w_vc", {200, 201, 202, 203, 300, 301, 302, 303, 400, 401, 402, 403, 700, 701, 702, 703, 800, 801, 802, 803, 900, 901, 902, 903});
  }
}

TEST_CASE_TEMPLATE_DEFINE("Launch: after the conversions, at the same address, once per update", Executor, derived_converted) {
  using keys = launched<Executor, absorb_keys<bf16>>;
  using values = launched<Executor, absorb_values<bf16>>;
  reference::layer layer = linear("kv_b_proj", 15, 7);
  const reference::runtime_tensor plan = reference::runtime_of(layer)[0];
  layout_engine<Executor> tested;
  tested.template add<AbsorbedFp8<Executor>>("kv_b_proj", extents_of(layer));
  tested.template add<KeptScale>("other", vector_of("other", 4));
  must(tested.model().seal());
  const std::byte* address = tested.data("kv_b_proj.w_kc");
  const reference::checkpoint others = {{"other.weight", halves(4, 0x3F80)}, {"other.input_scale", floats(4, 1)}};
  for (const auto& [seed, how] : std::vector<std::pair<std::uint64_t, stored_as>>{{1, stored_as::fp8}, {2, stored_as::bf16}, {3, stored_as::fp8}, {1, stored_as::fp8}}) {
    auto all = random_checkpoint(std::span(&layer, 1), seed, how);
    const std::vector<std::byte> weight = reference::cold_bytes(plan, all);
    std::vector<std::byte> wanted_keys(3 * 7 * 2 * 2), wanted_values(3 * 3 * 7 * 2);
    absorb_keys<bf16>::compute({weight}, 7, wanted_keys);
    absorb_values<bf16>::compute({weight}, 7, wanted_values);
    all.insert(others.begin(), others.end());
    keys::calls = values::calls = 0;
    update<Executor> open = tested.start();
    for (auto each = all.rbegin(); each != all.rend(); ++each) must(open.load(each->first, tested.place(each->second)));
    CHECK(keys::calls + values::calls == 0);  // not while landing
    must(open.finish());
    CHECK(keys::calls == 1);
    CHECK(values::calls == 1);
    CHECK(tested.bytes("kv_b_proj.weight") == weight);
    CHECK(tested.bytes("kv_b_proj.w_kc") == wanted_keys);
    CHECK(tested.bytes("kv_b_proj.w_vc") == wanted_values);
    check_refused(open.finish(), error_code::wrong_state);
    CHECK(keys::calls == 1);
  }
  CHECK(address == tested.data("kv_b_proj.w_kc"));
  // Nothing of this module came: it is not post-processed (miles#1926).
  const auto before = tested.image();
  const std::vector<std::string_view> names = {"other.weight"};
  update<Executor> open = tested.start({.scope = update_scope::partial(names)});
  must(open.load("other.weight", tested.place(halves(4, 0x4000))));
  must(open.finish());
  CHECK(keys::calls == 1);
  CHECK(before.at("kv_b_proj.w_kc") == tested.bytes("kv_b_proj.w_kc"));
  // A refused finish launched nothing; an aborted update neither.
  const auto next = random_checkpoint(std::span(&layer, 1), 9, stored_as::bf16);
  update<Executor> torn = tested.start();
  must(torn.load("kv_b_proj.weight", tested.place(next.at("kv_b_proj.weight"))));
  check_refused(torn.finish(), error_code::incomplete, "other.weight");
  must(torn.abort());
  CHECK(keys::calls == 1);
}

TEST_CASE_TEMPLATE_DEFINE("Derived: levels, whatever their order in the layout; only what depends is computed", Executor, derived_levels) {
  using shadow = launched<Executor, widen_all>;
  using total = launched<Executor, sum_all>;
  layout_engine<Executor> tested;
  tested.template add<ShadowedSinks<Executor>>("attn", vector_of("attn", 3));
  must(tested.model().seal());
  const auto expect = [&](int shadows, int totals, float inverse, float sum) {
    CHECK(shadow::calls == shadows);
    CHECK(total::calls == totals);
    CHECK(float_of(tested.bytes("attn.r0")) == inverse);
    CHECK(float_of(tested.bytes("attn.total")) == sum);
    shadow::calls = total::calls = 0;
  };
  shadow::calls = total::calls = 0;
  update<Executor> first = tested.start();
  must(first.load("attn.a", tested.place(one_float(4))));
  must(first.load("attn.sinks", tested.place(halves(3, 0x4000))));  // 2.0
  must(first.finish());
  expect(1, 1, 0.25F, 6.25F);
  CHECK(float_of(tested.bytes("attn.sinks_fp32"), 2) == 2);

  update<Executor> kept = tested.start();  // complete, without the kept scalar
  must(kept.load("attn.sinks", tested.place(halves(3, 0x3F80))));
  must(kept.finish());
  expect(1, 1, 0.25F, 3.25F);

  const std::vector<std::string_view> names = {"attn.a"};
  update<Executor> scalar = tested.start({.scope = update_scope::partial(names)});
  must(scalar.load("attn.a", tested.place(one_float(0.5F))));
  must(scalar.finish());
  expect(0, 1, 2, 5);
}

TEST_CASE_TEMPLATE_DEFINE("Launch: a launcher that fails leaves the model undefined until a repair", Executor, derived_fails) {
  using shadow = launched<Executor, widen_all>;
  layout_engine<Executor> tested;
  tested.template add<ShadowedSinks<Executor>>("attn", vector_of("attn", 3));
  must(tested.model().seal());
  const auto reload = [&](bool fails) {
    update<Executor> open = tested.start();
    must(open.load("attn.a", tested.place(one_float(1))));
    must(open.load("attn.sinks", tested.place(halves(3, 0x3F80))));
    shadow::fails = fails;
    const status result = open.finish();
    if (fails) CHECK(open.finish().code == result.code);  // sticky
    return result;
  };
  const status failed = reload(true);
  CHECK(failed.code == error_code::execution_failed);
  CHECK(failed.wrote_anything);
  CHECK(tested.model().state() == model_state::undefined);
  must(reload(false));
  CHECK(tested.model().state() == model_state::live);
  CHECK(float_of(tested.bytes("attn.total")) == 4);
}

TEST_CASE_TEMPLATE_DEFINE("Launch: sources come with their row stride", Executor, derived_strided) {
  using Layout = AbsorbedFp32<Executor>;
  test_memory<Executor> memory;
  model<Executor> engine;
  std::byte* weight = memory.allocate(10 * 24, std::byte{0xA5});
  std::byte* keys = memory.allocate(64, std::byte{0xA5});
  std::byte* values = memory.allocate(96, std::byte{0xA5});
  must(engine.template add<Layout>("l", extents::matrix("l", 10, 4), storage(weight, 24), keys, values));
  must(engine.seal());
  std::vector<float> numbers(40);
  for (std::size_t i = 0; i < 40; ++i) numbers[i] = static_cast<float>(i);
  const placed_source at = memory.place(numbers.data(), 160);
  status refused;
  update<Executor> open = engine.start({}, &refused);
  must(refused);
  must(open.load("l.weight", {at.data, dtype::fp32, {10, 4}, {}, at.memory}));
  must(open.finish());
  std::vector<float> found(24);
  memory.read(found.data(), values, 96);
  for (std::size_t i = 0; i < 24; ++i) CHECK(found[i] == static_cast<float>((i / 12 * 5 + 2 + i / 4 % 3) * 4 + i % 4));
  CHECK(memory.guards_intact());
}

/// r0 = a * b * c; r1 = a * c * b; r2 = 1 / (a * b); r3 = max(1 / a) * b; r4 = r2 * r3 * r3, listed first.
struct Arithmetic
    : ParamLayout<Derived<derived::r4, Bind, Product<derived::r2, derived::r3, derived::r3>>,
                  Param<derived::a, PerShard<fp32>>, Param<derived::b, PerShard<fp32>>, Param<derived::c, PerShard<fp32>>,
                  Derived<derived::r0, Bind, Product<derived::a, derived::b, derived::c>>,
                  Derived<derived::r1, Bind, Product<derived::a, derived::c, derived::b>>,
                  Derived<derived::r2, Bind, Reciprocal<Product<derived::a, derived::b>>>,
                  Derived<derived::r3, Bind, Product<Max<Reciprocal<derived::a>, Across<shards>>, Reciprocal<derived::b>>>> {};

TEST_CASE_TEMPLATE_DEFINE("Product: FP32, from left to right, each step rounded; Reciprocal of a factor and of the whole", Executor, derived_arithmetic) {
  layout_engine<Executor> tested;
  tested.template add<Arithmetic>("l", vector_of("l", 1));
  must(tested.model().seal());
  noise random(1);
  const auto rounded = [](double value) {
    const std::uint32_t code = reference::nearest(dtype::fp32, value);
    float result = 0;
    std::memcpy(&result, &code, 4);
    return result;
  };
  const auto times = [&](float x, float y) { return rounded(static_cast<double>(x) * static_cast<double>(y)); };
  const auto inverse = [&](float x) { return rounded(1.0 / static_cast<double>(x)); };
  const auto same = [](float x, float y) { return std::memcmp(&x, &y, 4) == 0; };
  for (int round = 0; round < 300; ++round) {
    std::array<float, 3> in = {};
    for (float& each : in) {
      const bool edge = random.below(3) == 0;
      const auto bits = edge ? edge_scales[random.below(std::size(edge_scales))] : static_cast<std::uint32_t>(random.next());
      std::memcpy(&each, &bits, 4);
    }
    if (round == 0) in = {1e30F, 1e30F, 1e-30F};  // the order is seen in the result
    update<Executor> open = tested.start();
    must(open.load("l.a", tested.place(one_float(in[0]))));
    must(open.load("l.b", tested.place(one_float(in[1]))));
    must(open.load("l.c", tested.place(one_float(in[2]))));
    must(open.finish());
    tested.memory().drop_sources();
    const float r2 = inverse(times(in[0], in[1])), r3 = times(inverse(in[0]), inverse(in[1]));
    CHECK(same(float_of(tested.bytes("l.r0")), times(times(in[0], in[1]), in[2])));
    CHECK(same(float_of(tested.bytes("l.r1")), times(times(in[0], in[2]), in[1])));
    CHECK(same(float_of(tested.bytes("l.r2")), r2));
    CHECK(same(float_of(tested.bytes("l.r3")), r3));
    CHECK(same(float_of(tested.bytes("l.r4")), times(times(r2, r3), r3)));
    if (round == 0) CHECK(float_of(tested.bytes("l.r0")) == std::numeric_limits<float>::infinity());
  }
}

TEST_CASE_TEMPLATE_DEFINE("PerShard: storage has to be dense, since arithmetic reads it so", Executor, derived_dense) {
  test_memory<Executor> memory;
  model<Executor> engine;
  std::vector<storage> places;
  for (int i = 0; i < 8; ++i) places.emplace_back(memory.allocate(64, std::byte{}), i == 2 ? 8 : 0);  // b
  check_refused(engine.add(Arithmetic::specs, "l", vector_of("l", 1), places), error_code::bad_argument, "l.b");
}

}  // namespace wreload::test
