#pragma once
/// `on_use`: why some classes here are templates without a visible parameter.

namespace wreload {

/// Host code in a header is compiled by every file that includes it, unless it is a template: then only by files that
/// use it. Classes with long bodies take this parameter for that reason alone; `using registry = basic_registry<>;`.
struct on_use {};

namespace detail {

template <class T, class>
struct dependent_type {
  using type = T;
};

}  // namespace detail

/// `T`, as a type that depends on a template's parameter. What a body does with other types is compiled where the body
/// stands, used or not: with clang 14 each function of each std::vector that it mentions. A class that works with many
/// says at its head
///
///     template <class T>
///     using vector = dependent<std::vector<T>, Use>;
///     using layer_plan = dependent<wreload::layer_plan, Use>;
template <class T, class Parameter>
using dependent = typename detail::dependent_type<T, Parameter>::type;

}  // namespace wreload
