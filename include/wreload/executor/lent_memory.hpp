#pragma once
/// `lent_memory`: pieces of one block of memory, each lent to a launch.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "launch_book.hpp"

namespace wreload::detail {

/// First-fit pieces of `size` bytes; a piece is free again once its launch is done. Nothing is allocated after `use`.
class lent_memory {
 public:
  void use(std::int64_t size) {
    size_ = size;
    pieces_.clear();
    pieces_.reserve(most_pieces);
  }
  std::int64_t size() const { return size_; }

  /// Offset of a free piece, a multiple of 256; -1 where there is none now.
  std::int64_t take(std::int64_t bytes, launch_id owner, const launch_book& book) {
    const std::int64_t rounded = (bytes + 255) / 256 * 256;
    std::erase_if(pieces_, [&](const piece& each) { return book.is_done(each.owner); });
    if (pieces_.size() == most_pieces) return -1;
    std::int64_t begin = 0;
    auto before = pieces_.begin();
    for (; before != pieces_.end() && before->begin - begin < rounded; ++before) begin = before->end;
    if (size_ - begin < rounded) return -1;
    pieces_.insert(before, {begin, begin + rounded, owner});
    return begin;
  }

 private:
  static constexpr std::size_t most_pieces = 256;
  struct piece {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    launch_id owner = {};
  };
  std::int64_t size_ = 0;
  std::vector<piece> pieces_ = {};  // by begin
};

}  // namespace wreload::detail
