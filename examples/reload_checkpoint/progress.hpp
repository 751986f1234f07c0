#pragma once
// One line on stderr while the tool works; only on a terminal.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include <unistd.h>

namespace reload {

class progress {
 public:
  progress() = default;
  progress(const progress&) = delete;  // two would write over each other
  progress& operator=(const progress&) = delete;
  ~progress() { clear(); }

  // A new piece of work.
  void begin(std::string what) {
    what_ = std::move(what);
    percent_ = -1;
    show(0, 1);
  }

  // How much of it is done.
  void show(std::int64_t bytes, std::int64_t of) {
    const std::int64_t whole = std::max<std::int64_t>(of, 1);
    const auto percent = static_cast<int>(100.0 * static_cast<double>(bytes) / static_cast<double>(whole));
    if (!terminal_ || percent == percent_) return;
    percent_ = percent;
    std::fprintf(stderr, "\r\x1b[K%s: %d %%", what_.c_str(), percent);
    std::fflush(stderr);
  }

  void clear() {
    if (terminal_ && percent_ >= 0) std::fprintf(stderr, "\r\x1b[K");
    percent_ = -1;
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::string what_ = {};
  int percent_ = -1;
};

}  // namespace reload
