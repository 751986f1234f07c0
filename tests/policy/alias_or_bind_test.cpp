// AliasOrBind and the free function: whose allocation a derived value uses.
#include <doctest/doctest.h>

#include <wreload/policy/alias_or_bind.hpp>

namespace wr = wreload;
using wr::dtype;
using wr::placement;

TEST_CASE("alias_or_bind: alias where dtypes match and the value broadcasts to the source's shape") {
  struct row {
    wr::placed_tensor source, value;
    placement where;
    std::int64_t shared, saved, bound;
  };
  const row table[] = {
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {4, 8}}, placement::alias, 128, 128, 0},
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {8}}, placement::alias, 128, 32, 0},
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {1, 8}}, placement::alias, 128, 32, 0},
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {4, 1}}, placement::alias, 128, 16, 0},
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {}}, placement::alias, 128, 4, 0},           // a scalar fills it
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {1, 1, 1}}, placement::alias, 128, 4, 0},    // however it is written
      {{dtype::fp32, {}}, {dtype::fp32, {}}, placement::alias, 4, 4, 0},
      {{dtype::fp32, {}}, {dtype::fp32, {1}}, placement::alias, 4, 4, 0},
      {{dtype::bf16, {2, 3}}, {dtype::bf16, {2, 3}}, placement::alias, 12, 12, 0},
      {{dtype::fp32, {4, 8}}, {dtype::bf16, {4, 8}}, placement::bind, 0, 0, 64},         // another dtype, even a narrower one
      {{dtype::fp8_e4m3, {4, 8}}, {dtype::u8, {4, 8}}, placement::bind, 0, 0, 32},       // or one of the same size
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {4}}, placement::bind, 0, 0, 16},            // dims count from the right
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {8, 4}}, placement::bind, 0, 0, 128},        // as many elements do not do
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {32}}, placement::bind, 0, 0, 128},
      {{dtype::fp32, {1, 8}}, {dtype::fp32, {4, 8}}, placement::bind, 0, 0, 128},        // a value does not shrink
      {{dtype::fp32, {4, 8}}, {dtype::fp32, {1, 4, 8}}, placement::bind, 0, 0, 128},
      {{dtype::fp32, {0, 8}}, {dtype::fp32, {1, 1, 1}}, placement::bind, 0, 0, 4},       // nothing has no room for a scalar
      {{dtype::fp32, {0, 8}}, {dtype::fp32, {}}, placement::bind, 0, 0, 4},
      {{dtype::fp32, {0, 8}}, {dtype::fp32, {1, 8}}, placement::bind, 0, 0, 32},
      {{dtype::fp32, {0, 8}}, {dtype::fp32, {0, 8}}, placement::alias, 0, 0, 0},
  };
  for (const row& each : table) {
    CAPTURE(to_string(each.source.extents));
    CAPTURE(to_string(each.value.extents));
    const wr::placed found = wr::alias_or_bind(each.source, each.value);
    CHECK((found.where == each.where));
    CHECK(found.shared_bytes == each.shared);
    CHECK(found.saved_bytes == each.saved);
    CHECK(found.bound_bytes == each.bound);
    const wr::placed forced = wr::alias_or_bind(each.source, each.value, true);
    CHECK((forced.where == placement::bind));
    CHECK(forced.shared_bytes == 0);
    CHECK(forced.saved_bytes == 0);
    CHECK(forced.bound_bytes == each.value.extents.elements() * bytes_of(each.value.type));
  }
}
