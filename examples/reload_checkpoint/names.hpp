#pragma once
// Tensor names of a checkpoint taken apart: `model.layers.0.mlp.up_proj.weight` is the param `weight` of the module
// `model.layers.0.mlp.up_proj`, whose leaf name is `up_proj`.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reload {

struct tensor_name {
  std::string_view module = {};
  std::string_view param = {};
  bool has_module = false;  // the name has a dot

  explicit tensor_name(std::string_view name) : param(name) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return;
    has_module = true;
    this->module = name.substr(0, dot);
    param = name.substr(dot + 1);
  }
};

inline std::string_view leaf_of(std::string_view module) {
  return module.substr(module.rfind('.') + 1);  // npos + 1: 0
}

// The same module with another leaf name.
inline std::string sibling(std::string_view module, std::string_view leaf) {
  return std::string(module.substr(0, module.size() - leaf_of(module).size())) + std::string(leaf);
}

inline std::string join(std::string_view module, std::string_view param) {
  return std::string(module) + "." + std::string(param);
}

// `--order` sends these before or after all others.
inline bool is_scale(std::string_view name) {
  return name.ends_with("weight_scale") || name.ends_with("weight_scale_inv") || name.ends_with("weight_scale_2") ||
         name.ends_with("input_scale");
}

inline bool is_block_scale_param(std::string_view param) {
  return param == "weight_scale_inv" || param == "weight_scale";
}

// What makes sense only beside a weight, whatever else the module has.
inline bool is_nvfp4_scale_param(std::string_view param) {
  return param == "weight_scale" || param == "weight_scale_2" || param == "input_scale";
}

// The name of an expert's tensor taken apart: `P.experts.N.{gate,up,down}_proj.PARAM`.
struct expert_name {
  std::string_view layer = {};   // `P.experts`; empty: no expert's tensor
  std::string_view number = {};  // N
  std::string_view module = {};  // `gate_proj`, `up_proj` or `down_proj`
  std::string_view param = {};

  explicit expert_name(std::string_view name) {
    constexpr std::string_view experts = "experts.";
    for (std::size_t at = name.find(experts); at != std::string_view::npos; at = name.find(experts, at + 1)) {
      if (at > 0 && name[at - 1] != '.') continue;
      const std::string_view rest = name.substr(at + experts.size());
      const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
      for (const std::string_view known : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string_view behind = rest.substr(std::min(digits + 1 + known.size(), rest.size()));
        if (digits == 0 || behind.size() < 2 || behind[0] != '.' || rest[digits] != '.' ||
            rest.substr(digits + 1, known.size()) != known)
          continue;
        layer = name.substr(0, at + experts.size() - 1);
        number = rest.substr(0, digits);
        this->module = known;
        param = behind.substr(1);
        return;
      }
    }
  }

  bool is_expert() const { return !layer.empty(); }
  // Empty for a number that no index is written like.
  std::optional<std::int64_t> index() const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool good = error == std::errc() && end == number.data() + number.size() && value < INT64_MAX;
    return good && (number.size() == 1 || number[0] != '0') ? std::optional(value) : std::nullopt;
  }
};

}  // namespace reload
