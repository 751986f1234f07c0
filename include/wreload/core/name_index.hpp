#pragma once
/// `name_index`: from names to the ids of records that hold them.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "on_use.hpp"

namespace wreload {

/// Flat hash index. Names stay with their records: `name_of(id)` gives an id's name back, so a look-up touches one slot
/// and one name, and an entry costs 8 bytes.
template <class Use = on_use>
class basic_name_index {
 public:
  static constexpr std::int32_t none = -1;

  /// The id of a name, or `none`.
  template <class NameOf>
  std::int32_t find(std::string_view name, NameOf&& name_of) const {
    if (slots_.empty()) return none;
    const std::uint32_t hash = hash_of(name);
    for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
      const slot& entry = slots_[at];
      if (entry.id == none) return none;
      if (entry.hash == hash && name_of(entry.id) == name) return entry.id;
    }
  }

  /// Adds a name that `find` does not know.
  void add(std::string_view name, std::int32_t id) {
    if (slots_.size() < 2 * (size_ + 1)) grow();
    place({hash_of(name), id});
    ++size_;
  }

 private:
  template <class T>
  using vector = dependent<std::vector<T>, Use>;

  struct slot {
    std::uint32_t hash = 0;
    std::int32_t id = none;
  };

  static std::uint32_t hash_of(std::string_view name) {
    const std::uint64_t hash = std::hash<std::string_view>()(name);
    return static_cast<std::uint32_t>(hash ^ (hash >> 32U));
  }
  std::size_t mask() const { return slots_.size() - 1; }

  void place(slot entry) {
    std::size_t at = entry.hash & mask();
    while (slots_[at].id != none) at = (at + 1) & mask();
    slots_[at] = entry;
  }

  void grow() {
    vector<slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    for (const slot& entry : old)
      if (entry.id != none) place(entry);
  }

  vector<slot> slots_ = {};  ///< a power of two, at most half full
  std::size_t size_ = 0;
};

using name_index = basic_name_index<>;

}  // namespace wreload
