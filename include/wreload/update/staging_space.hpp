#pragma once
/// `staging_space`: memory in which an update keeps bytes until they are committed.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "../core/on_use.hpp"

namespace wreload::detail {

/// First-fit pieces of one or more blocks, in units of 16 bytes. Does not own the blocks.
template <class = on_use>
class basic_staging_space {
 public:
  static constexpr std::int64_t unit = 16;
  static constexpr std::int64_t rounded(std::int64_t bytes) { return (bytes + unit - 1) / unit * unit; }

  /// Uses a block from its first address that is a multiple of 16 on.
  void add(std::byte* data, std::int64_t bytes) {
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % unit);
    const std::int64_t skipped = past == 0 ? 0 : unit - past;
    if (bytes - skipped < unit) return;
    const std::int64_t usable = (bytes - skipped) / unit * unit;
    size_ += usable;
    used_ += usable;
    give_back(data + skipped, usable);
  }

  /// Null where no free piece is that long.
  std::byte* take(std::int64_t bytes) {
    const std::int64_t wanted = rounded(bytes);
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (at->second < wanted) continue;
      std::byte* data = at->first;
      const std::int64_t rest = at->second - wanted;
      free_.erase(at);
      if (rest > 0) free_.emplace(data + wanted, rest);
      used_ += wanted;
      if (used_ > peak_) peak_ = used_;
      return data;
    }
    return nullptr;
  }

  void give_back(std::byte* data, std::int64_t bytes) {
    const std::int64_t size = rounded(bytes);
    auto added = free_.emplace(data, size).first;
    used_ -= size;
    if (const auto next = std::next(added); next != free_.end() && data + size == next->first) {
      added->second += next->second;
      free_.erase(next);
    }
    if (added == free_.begin()) return;
    const auto before = std::prev(added);
    if (before->first + before->second != data) return;
    before->second += added->second;
    free_.erase(added);
  }

  std::int64_t size() const { return size_; }
  std::int64_t used() const { return used_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::map<std::byte*, std::int64_t> free_ = {};  // by address; neighbours are joined
  std::int64_t size_ = 0;
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
};

using staging_space = basic_staging_space<>;

}  // namespace wreload::detail
