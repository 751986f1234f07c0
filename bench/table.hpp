#pragma once
/// The part of the harness that needs no CUDA: clock, median, and a table that is also one line of JSON.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace bench {

/// Ends the program where a status of the library's is an error.
template <class Status>
void demand(const Status& result) {
  if (result.ok()) return;
  std::fprintf(stderr, "%s\n", result.message().c_str());
  std::exit(1);
}

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Rows of a table; `print` writes them once more as `JSON {...}` on one line, which bench/summary.py reads.
class table {
 public:
  /// A transfer: its time, its rate, and that rate over the yardstick's that `of` names.
  void add(const std::string& name, double seconds, double bytes, double ratio, const char* of = "copy") {
    std::printf("%-58s %9.3f ms  %6.3f TB/s  %5.3f of %s\n", name.c_str(), seconds * 1e3, bytes / seconds * 1e-12, ratio,
                of);
    char text[256];
    std::snprintf(text, sizeof text, "{\"name\": \"%s\", \"ms\": %.4f, \"tb_per_s\": %.4f, \"of_%s\": %.4f}",
                  name.c_str(), seconds * 1e3, bytes / seconds * 1e-12, of, ratio);
    rows_.emplace_back(text);
  }
  /// Any other figure.
  void add_value(const std::string& name, double value, const char* unit) {
    std::printf("%-58s %9.4g %s\n", name.c_str(), value, unit);
    char text[256];
    std::snprintf(text, sizeof text, "{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}", name.c_str(), value,
                  unit);
    rows_.emplace_back(text);
  }
  void print(bool verified) const {
    std::printf("JSON {\"verified\": %s, \"rows\": [", verified ? "true" : "false");
    for (std::size_t i = 0; i < rows_.size(); ++i) std::printf("%s%s", i == 0 ? "" : ", ", rows_[i].c_str());
    std::printf("]}\n");
  }

 private:
  std::vector<std::string> rows_ = {};
};

}  // namespace bench
