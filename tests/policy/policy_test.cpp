// What a policy is, and how a param finds the one on an axis.
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <wreload/layout/param.hpp>
#include <wreload/layouts/names.hpp>

namespace wr = wreload;

namespace {

struct down_proj { static constexpr std::string_view name = "down_proj"; };
struct literal_name { static constexpr const char* name = "a literal will do"; };
struct nameless {};

struct dense_view { using axis = wr::axis::storage; };
struct other_view { using axis = wr::axis::storage; };
struct short_lived { using axis = wr::axis::lifetime; };

}  // namespace

static_assert(wr::name_tag<down_proj> && wr::name_tag<literal_name>);
static_assert(!wr::name_tag<nameless> && !wr::name_tag<const char*> && !wr::name_tag<int>);

static_assert(wr::policy<dense_view> && wr::policy<wr::Retired> && wr::policy<wr::BlockScale<1, 16, wr::fp8_e4m3>>);
static_assert(!wr::policy<down_proj> && !wr::policy<wr::Over<wr::bf16>>);  // Over is a member of a policy, not one

static_assert(wr::detail::policies_on<wr::axis::storage> == 0);
static_assert(wr::detail::policies_on<wr::axis::storage, dense_view, short_lived> == 1);
static_assert(wr::detail::policies_on<wr::axis::storage, dense_view, short_lived, other_view> == 2);

static_assert(std::is_same_v<wr::policy_on<wr::axis::storage, void, short_lived, dense_view>, dense_view>);
static_assert(std::is_same_v<wr::policy_on<wr::axis::lifetime, void, short_lived, dense_view>, short_lived>);
static_assert(std::is_same_v<wr::policy_on<wr::axis::lifetime, void, dense_view>, void>);
static_assert(std::is_same_v<wr::policy_on<wr::axis::lifetime, void>, void>);

TEST_CASE("policies of a param may come in any order") {
  using one = wr::Param<wr::names::weight_scale_inv, wr::BlockScale<128, 128, wr::fp32>, wr::Retired,
                        wr::AlsoNamed<wr::names::weight_scale>>;
  using other = wr::Param<wr::names::weight_scale_inv, wr::AlsoNamed<wr::names::weight_scale>, wr::Retired,
                          wr::BlockScale<128, 128, wr::fp32>>;
  static_assert(std::is_same_v<one::storage, other::storage> && std::is_same_v<one::lifetime, other::lifetime> &&
                std::is_same_v<one::spelling, other::spelling>);
  CHECK(one::spec.retired);
  CHECK(other::spec.retired);
  CHECK(one::spec.spellings.size() == 1);
  CHECK(other::spec.spellings.size() == 1);
}

TEST_CASE("a param without further policies has its own name as leaf") {
  using param = wr::Param<down_proj, wr::StorageView<wr::bf16>, wr::Kept>;
  CHECK(param::spec.kept);
  CHECK(param::spec.name == "down_proj");
  CHECK(param::spec.leaf == "down_proj");
}
