// Dtypes: sizes, spellings, tags, and small sets of them.
#include <set>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <wreload/core/dtype.hpp>

namespace wr = wreload;

namespace {

struct fact {
  wr::dtype type;
  std::int64_t bytes;
  const char* name;
};

// What safetensors writes; packed fp4 has a name of its own here.
constexpr fact facts[] = {
    {wr::dtype::boolean, 1, "BOOL"},       {wr::dtype::u8, 1, "U8"},
    {wr::dtype::i8, 1, "I8"},              {wr::dtype::u16, 2, "U16"},
    {wr::dtype::i16, 2, "I16"},            {wr::dtype::u32, 4, "U32"},
    {wr::dtype::i32, 4, "I32"},            {wr::dtype::u64, 8, "U64"},
    {wr::dtype::i64, 8, "I64"},            {wr::dtype::fp16, 2, "F16"},
    {wr::dtype::bf16, 2, "BF16"},          {wr::dtype::fp32, 4, "F32"},
    {wr::dtype::fp64, 8, "F64"},           {wr::dtype::fp8_e4m3, 1, "F8_E4M3"},
    {wr::dtype::fp8_e5m2, 1, "F8_E5M2"},   {wr::dtype::fp8_ue8m0, 1, "F8_E8M0"},
    {wr::dtype::fp4_e2m1x2, 1, "F4_E2M1X2"},
};

struct engines_own { static constexpr wr::dtype id = wr::dtype::bf16; };
struct mutable_id { static inline wr::dtype id = wr::dtype::bf16; };
struct integer_id { static constexpr int id = 3; };

}  // namespace

static_assert(std::size(facts) + 1 == wr::dtype_count);  // and `none`
static_assert(wr::bytes_of(wr::dtype::none) == 0);

static_assert(wr::boolean::id == wr::dtype::boolean && wr::u8::id == wr::dtype::u8 && wr::i8::id == wr::dtype::i8);
static_assert(wr::u16::id == wr::dtype::u16 && wr::i16::id == wr::dtype::i16 && wr::u32::id == wr::dtype::u32);
static_assert(wr::i32::id == wr::dtype::i32 && wr::u64::id == wr::dtype::u64 && wr::i64::id == wr::dtype::i64);
static_assert(wr::fp16::id == wr::dtype::fp16 && wr::bf16::id == wr::dtype::bf16 && wr::fp32::id == wr::dtype::fp32);
static_assert(wr::fp64::id == wr::dtype::fp64 && wr::fp8_e4m3::id == wr::dtype::fp8_e4m3);
static_assert(wr::fp8_e5m2::id == wr::dtype::fp8_e5m2 && wr::fp8_ue8m0::id == wr::dtype::fp8_ue8m0);
static_assert(wr::fp4_e2m1x2::id == wr::dtype::fp4_e2m1x2);

static_assert(wr::dtype_tag<wr::bf16> && wr::dtype_tag<engines_own>);
static_assert(!wr::dtype_tag<float> && !wr::dtype_tag<wr::dtype> && !wr::dtype_tag<mutable_id> &&
              !wr::dtype_tag<integer_id>);
static_assert(std::is_trivially_copyable_v<wr::dtype_set>);

TEST_CASE("every dtype has its size and the spelling of safetensors") {
  std::set<std::string> seen;
  for (const fact& known : facts) {
    CAPTURE(known.name);
    CHECK(wr::bytes_of(known.type) == known.bytes);
    CHECK(wr::name_of(known.type) == known.name);
    CHECK(seen.insert(std::string(wr::name_of(known.type))).second);
  }
  CHECK(wr::name_of(wr::dtype::none) == "none");
}

TEST_CASE("a value beyond the list is no dtype, not a crash") {
  const auto beyond = static_cast<wr::dtype>(wr::dtype_count);
  CHECK(wr::bytes_of(beyond) == 0);
  CHECK(wr::name_of(beyond) == "?");
}

TEST_CASE("a set holds exactly what was put in") {
  for (const fact& a : facts)
    for (const fact& b : facts) {
      const wr::dtype_set both = wr::dtype_set(a.type) | b.type;
      for (const fact& c : facts) REQUIRE(both.contains(c.type) == (c.type == a.type || c.type == b.type));
      REQUIRE((both & wr::dtype_set(b.type)) == wr::dtype_set(b.type));
      REQUIRE((wr::dtype_set(a.type) & b.type) == (a.type == b.type ? wr::dtype_set(a.type) : wr::dtype_set{}));
    }
}

TEST_CASE("no set contains `none`") {
  CHECK_FALSE(wr::dtype_set{}.contains(wr::dtype::none));
  CHECK_FALSE(wr::dtype_set(wr::dtype::none).contains(wr::dtype::none));
  CHECK(wr::dtype_set(wr::dtype::none) == wr::dtype_set{});
}

TEST_CASE("a set is spelled with `or`, in one order") {
  using enum wr::dtype;
  CHECK(wr::to_string(wr::dtype_set{}) == "");
  CHECK(wr::to_string(wr::dtype_set(bf16)) == "BF16");
  CHECK(wr::to_string(wr::dtype_set(fp8_e4m3) | bf16) == wr::to_string(wr::dtype_set(bf16) | fp8_e4m3));
  CHECK(wr::to_string(wr::dtype_set(bf16) | fp8_e4m3) == "BF16 or F8_E4M3");
  CHECK(wr::to_string(wr::dtype_set(fp4_e2m1x2)) == "F4_E2M1X2");  // the last of the list
}
