#pragma once
// A layer of the engine, as `model::add` takes it.

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "options.hpp"

namespace reload {

struct layer {
  std::string name = {};
  std::span<const wr::param_spec> specs = {};
  wr::extents sizes = {};
};

// The param of a layout that `<module>.<leaf>` lands in; null where it has none. A layout that is not stacked takes its
// modules as they come.
inline const wr::param_spec* reader_of(std::span<const wr::param_spec> specs, std::string_view module,
                                       std::string_view leaf) {
  const auto has = [](std::span<const std::string_view> list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const wr::param_spec& spec : specs)
    if ((spec.leaf == leaf || has(spec.spellings, leaf)) && (spec.modules.empty() || has(spec.modules, module)))
      return &spec;
  return nullptr;
}

}  // namespace reload
