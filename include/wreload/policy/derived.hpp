#pragma once
/// Rules of derived params: `Max`, `Pick`, `Product`, `Reciprocal`, and `Launch` for an engine's own.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../core/dtype.hpp"
#include "../core/shape.hpp"
#include "../core/status.hpp"
#include "../core/tensor_ref.hpp"
#include "policy.hpp"

namespace wreload {

/// Axes that `Max` reduces over: the modules fused into a layer, and the experts of a stacked one.
struct shards {
  static constexpr unsigned bit = 1;
};
struct experts {
  static constexpr unsigned bit = 2;
};
template <class... Axes>
struct Across {
  static constexpr unsigned bits = (0U | ... | Axes::bit);
};

/// One factor of a product: a param (per expert, or reduced), possibly the reciprocal of each of its values.
struct factor_spec {
  std::string_view param = {};
  std::string_view module = {};  ///< `Pick`: the column of this module
  unsigned across = 0;           ///< `Max`: axes that are reduced
  bool inverted = false;         ///< each value is inverted before a maximum
};

inline constexpr std::size_t max_factors = 3;

/// A rule with its types erased: [1 /] factor * factor * ..., FP32, from left to right, each step rounded to nearest.
struct product_spec {
  std::array<factor_spec, max_factors> factors = {};
  std::size_t count = 0;
  bool inverted = false;
};

/// A name by itself: the value per expert (or the scalar).
template <name_tag Name>
struct Value {
  static constexpr product_spec spec = {{factor_spec{Name::name, {}, 0, false}}, 1, false};
};

namespace detail {
template <class Rule>
struct as_rule {
  using type = Value<Rule>;
};
template <class Rule>
  requires requires { Rule::spec; }
struct as_rule<Rule> {
  using type = Rule;
};
template <class Rule>
inline constexpr product_spec rule_spec = as_rule<Rule>::type::spec;
}  // namespace detail

/// Greatest value of a `PerShard` param (or of `Reciprocal<param>`) over the axes; NaN wins.
///
///     static_assert(Max<input_scale, Across<shards>>::spec.factors[0].across == shards::bit);
template <class Of, class Axes>
struct Max {
  static constexpr product_spec spec = [] {
    product_spec made = detail::rule_spec<Of>;
    made.factors[0].across = Axes::bits;
    made.factors[0].inverted = made.inverted;
    made.inverted = false;
    return made;
  }();
  static_assert(detail::rule_spec<Of>.count == 1 && detail::rule_spec<Of>.factors[0].across == 0,
                "Max: reduces one PerShard param (or its Reciprocal); name it directly");
  static_assert(Axes::bits != 0, "Max: reduces over nothing; write Across<shards> or Across<experts, shards>");
};

/// The values of one module of a `PerShard` param.
template <name_tag Of, name_tag Module>
struct Pick {
  static constexpr product_spec spec = {{factor_spec{Of::name, Module::name, 0, false}}, 1, false};
};

/// 1 / x, rounded to nearest.
template <class Of>
struct Reciprocal {
  static constexpr product_spec spec = [] {
    product_spec made = detail::rule_spec<Of>;
    made.inverted = !made.inverted;
    return made;
  }();
  static_assert(!detail::rule_spec<Of>.inverted, "Reciprocal: of a reciprocal; remove both");
};

/// Product of up to three factors, from left to right.
template <class... Factors>
struct Product {
  static constexpr product_spec spec = [] {
    product_spec made;
    const auto add = [&](const product_spec& one) {
      made.factors[made.count] = one.factors[0];
      made.factors[made.count++].inverted |= one.inverted;
    };
    (add(detail::rule_spec<Factors>), ...);
    return made;
  }();
  static_assert(sizeof...(Factors) >= 1 && sizeof...(Factors) <= max_factors,
                "Product: takes one to three factors; split it into two derived params");
  static_assert(((detail::rule_spec<Factors>.count == 1) && ...),
                "Product: a factor is itself a product; list its factors here");
  static_assert(((!detail::rule_spec<Factors>.inverted || detail::rule_spec<Factors>.factors[0].across == 0) && ...),
                "Product: a factor is the reciprocal of a maximum; derive that one first and name it");
};

/// A runtime tensor that an engine's own launcher reads or writes.
struct runtime_tensor {
  std::byte* data = nullptr;
  dtype type = dtype::none;
  shape extents = {};
  std::int64_t row_stride_bytes = 0;
};

/// What the engine's own transform is: the dtype and shape of the result, and a launcher that enqueues it on a stream.
/// The launcher runs at commit, after all conversions, once per update that changes a source. Its kernels are the engine's:
/// an `abort` between commit and `publish` does not stop what they still write.
template <class Transform>
concept transform = requires(std::span<const shape> shapes, stream_ref stream, std::span<const runtime_tensor> from,
                             const runtime_tensor& to) {
  dtype(Transform::type);
  { Transform::extents(shapes) } -> std::same_as<shape>;
  { Transform::launch(stream, from, to) } -> std::same_as<status>;
};

/// A launcher with its types erased.
struct launch_spec {
  dtype type = dtype::none;
  shape (*extents)(std::span<const shape>) = nullptr;
  status (*launch)(stream_ref, std::span<const runtime_tensor>, const runtime_tensor&) = nullptr;
  std::span<const std::string_view> sources = {};
};

/// Rule: the engine's own transform of these params.
///
///     Derived<w_uk_t, Bind, Launch<absorb_uk, weight>>
template <transform Transform, name_tag... Sources>
struct Launch {
  static constexpr std::array<std::string_view, sizeof...(Sources)> names = {std::string_view(Sources::name)...};
  static constexpr launch_spec spec = {Transform::type, &Transform::extents, &Transform::launch, names};
  static_assert(sizeof...(Sources) > 0, "Launch: names no source; list the params it reads");
};

}  // namespace wreload
