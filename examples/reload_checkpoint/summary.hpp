#pragma once
// What a run found out. No library but wreload: a .cu file may include it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"

namespace reload {

struct summary {
  std::string device = "host";  // where the weights lived, in words
  wr::model_state state = wr::model_state::undefined;
  std::int64_t version = 0;
  std::vector<wr::report> loads = {};  // of each successful update
  double audit_seconds = 0;
  std::vector<std::string> warnings = {};
  std::optional<wr::audit_result> audit = {};

  void warn(const std::string& warning) {  // once, however many loads say it
    if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) warnings.push_back(warning);
  }
};

}  // namespace reload
