#pragma once
/// `update_scope`: what an update promises to send.

#include <span>
#include <string_view>

namespace wreload {

/// `complete`: every tensor of the model. `partial`: exactly the declared ones; a name is declared if any of the three
/// says so. Views must live until `start` has returned.
struct update_scope {
  bool is_complete = true;
  std::span<const std::string_view> names = {};  ///< checkpoint names
  std::string_view prefix = {};                  ///< empty: declares nothing
  bool (*predicate)(std::string_view name, void* context) = nullptr;
  void* context = nullptr;

  static update_scope complete() { return {}; }
  static update_scope partial(std::span<const std::string_view> declared) { return {false, declared, {}, nullptr, nullptr}; }
  static update_scope under(std::string_view name_prefix) { return {false, {}, name_prefix, nullptr, nullptr}; }
};

}  // namespace wreload
