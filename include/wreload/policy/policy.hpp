#pragma once
/// What a policy is: a type that answers one question about a param (its `axis`). A param has at most one a question.

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace wreload {

/// A name that may stand in a template list: `struct down_proj { static constexpr std::string_view name = "down_proj"; };`
template <class Tag>
concept name_tag = requires { std::string_view(Tag::name); };

/// The questions a policy can answer.
namespace axis {
struct storage {};   ///< what the bytes are: StorageView, BlockScale
struct scale {};     ///< which param scales this one: ScaledBy
struct lifetime {};  ///< who reads it, must it come: Retired, Kept, Static
struct spelling {};  ///< other spellings of its checkpoint name: AlsoNamed
struct twin {};      ///< a second checkpoint name of the same bytes: SameAs
struct source {};    ///< which checkpoint modules it is stacked from: From
struct accepted {};  ///< further dtypes that may be loaded: Accepts
struct place {};     ///< whose allocation a derived param uses: AliasOrBind, Bind
struct map {};       ///< in which order the bytes lie, and their pads: Map
}  // namespace axis

template <class Policy>
concept policy = requires { typename Policy::axis; };

namespace detail {

template <class Axis, class... Policies>
inline constexpr std::size_t policies_on = (std::size_t{0} + ... + (std::is_same_v<typename Policies::axis, Axis> ? 1U : 0U));

template <class Axis, class Default, class... Policies>
struct find_policy {
  using type = Default;
};
template <class Axis, class Default, class First, class... Rest>
struct find_policy<Axis, Default, First, Rest...>
    : std::conditional_t<std::is_same_v<typename First::axis, Axis>, std::type_identity<First>,
                         find_policy<Axis, Default, Rest...>> {};

}  // namespace detail

/// The policy on this axis, or `Default` where the list has none.
template <class Axis, class Default, class... Policies>
using policy_on = typename detail::find_policy<Axis, Default, Policies...>::type;

}  // namespace wreload
