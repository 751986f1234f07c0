#pragma once
/// `name_index`: from names to the ids of records that hold them; `name_order`: guesses from the names before.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "on_use.hpp"
#include "prefetch.hpp"

namespace wreload {

/// Flat hash index. Names stay with their records: `name_of(id)` gives an id's name back, so a look-up touches one slot
/// and one name, and an entry costs 11 to 21 bytes.
template <class Use = on_use>
class basic_name_index {
 public:
  static constexpr std::int32_t none = -1;

  /// Whatever names an engine has, made by hand or from a pattern; not against an adversary.
  static std::uint32_t hash_of(std::string_view name) {
    std::uint64_t hash = name.size() * factor;
    const char* at = name.data();
    std::size_t left = name.size();
    for (; left > 16; at += 16, left -= 16) hash = fold(word(at, 8) ^ hash, word(at + 8, 8) ^ factor);
    const std::uint64_t first = left >= 8 ? word(at, 8) : word(at, left);
    const std::uint64_t second = left > 8 ? word(at + left - 8, 8) : 0;  // overlaps the first
    hash = fold(fold(first ^ hash, second ^ factor), factor);
    return static_cast<std::uint32_t>(hash ^ (hash >> 32U));
  }

  /// The id of a name, or `none`.
  template <class NameOf>
  std::int32_t find(std::string_view name, NameOf&& name_of) const {
    return find(name, hash_of(name), name_of);
  }
  template <class NameOf>
  std::int32_t find(std::string_view name, std::uint32_t hash, NameOf&& name_of) const {
    if (slots_.empty()) return none;
    for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
      const slot& entry = slots_[at];
      if (entry.id == none) return none;
      if (entry.hash == hash && name_of(entry.id) == name) return entry.id;
    }
  }

  /// The first id with this hash, whatever its name; or `none`.
  std::int32_t candidate(std::uint32_t hash) const {
    if (slots_.empty()) return none;
    for (std::size_t at = hash & mask();; at = (at + 1) & mask())
      if (slots_[at].id == none || slots_[at].hash == hash) return slots_[at].id;
  }

  /// Starts to fetch what `find` reads first.
  void prefetch(std::uint32_t hash) const {
    if (!slots_.empty()) wreload::prefetch(&slots_[hash & mask()]);
  }

  /// Adds a name that `find` does not know.
  void add(std::string_view name, std::int32_t id) {
    if (3 * slots_.size() < 4 * (size_ + 1)) grow();
    place({hash_of(name), id});
    ++size_;
  }

  /// Forgets all names and gives their memory back.
  void clear() {
    vector<slot>().swap(slots_);
    size_ = 0;
  }

 private:
  template <class T>
  using vector = dependent<std::vector<T>, Use>;

  struct slot {
    std::uint32_t hash = 0;
    std::int32_t id = none;
  };

  static constexpr std::uint64_t factor = 0x9E3779B97F4A7C15U;

  static std::uint64_t word(const char* at, std::size_t bytes) {
    std::uint64_t value = 0;
    if (bytes == 8) std::memcpy(&value, at, 8);
    else
      for (std::size_t i = 0; i < bytes; ++i) value = value << 8U | static_cast<unsigned char>(at[i]);
    return value;
  }
  /// Both halves of the 128-bit product, mixed; neither factor may be 0 often.
  static std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
    __extension__ using wide = unsigned __int128;
    const wide product = static_cast<wide>(a ^ (a >> 32U)) * (b | 1U);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
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

  vector<slot> slots_ = {};  ///< a power of two, at most three quarters full
  std::size_t size_ = 0;
};

using name_index = basic_name_index<>;

/// Which name came after which, the last time. Senders keep their order, so the name that follows is mostly known: it
/// is compared, not looked up. 4 bytes a name. Not thread safe.
template <class Use = on_use>
class basic_name_order {
 public:
  static constexpr std::int32_t none = -1;

  /// Where a sender is in its order, and how good its guesses are.
  struct cursor {
    static constexpr std::uint32_t depth = 8;  ///< a power of two

    std::int32_t last = 0;
    std::int32_t trust = 1;           ///< guess only above 0: a wrong guess costs a cache miss
    std::int32_t ahead[depth] = {};   ///< what is expected after `last`: a ring
    std::uint32_t front = 0;
    std::uint32_t count = 0;

    /// The name that is expected `steps` after the next one; `none` where nobody has looked that far.
    std::int32_t expected(std::uint32_t steps) const { return steps < count ? ahead[(front + steps) % depth] : none; }
  };

  void resize(std::size_t names) {
    for (std::size_t i = next_.size(); i < names; ++i) next_.push_back(static_cast<std::int32_t>((i + 1) % names));
  }

  /// The id of a name, or `none`. `name_of` as in the index; `look_up(name)` is the index's answer.
  template <class NameOf, class LookUp>
  std::int32_t find(std::string_view name, cursor& from, NameOf&& name_of, LookUp&& look_up) {
    if (next_.empty()) return look_up(name);
    std::int32_t& guess = next_[static_cast<std::size_t>(from.last)];
    if (from.trust > 0 && name_of(guess) == name) {
      from.trust = most_trust;
      return from.last = guess;
    }
    const std::int32_t found = look_up(name);
    if (found >= 0) follow(found, from);
    return found;
  }
  /// The same for a name of which the id is known.
  void follow(std::int32_t id, cursor& from) {
    std::int32_t& guess = next_[static_cast<std::size_t>(from.last)];
    from.trust = id == guess ? most_trust : from.trust > 0 ? from.trust - 1 : 0;
    from.last = guess = id;
  }

  /// What is expected after a name.
  std::int32_t next(std::int32_t id) const { return next_[static_cast<std::size_t>(id)]; }

  /// Looks a step or two further ahead, once a load: a step is a cache miss, which the next load finds served.
  void look_ahead(cursor& from) const {
    if (from.count > 0 && from.ahead[from.front] == from.last) {
      from.front = (from.front + 1) % cursor::depth;
      --from.count;
    } else {
      from.count = 0;
    }
    for (int step = 0; step < 2 && from.count < cursor::depth; ++step) {
      const std::int32_t before = from.count == 0 ? from.last : from.expected(from.count - 1);
      const std::int32_t after = next(before);
      wreload::prefetch(&next_[static_cast<std::size_t>(after)]);
      from.ahead[(from.front + from.count++) % cursor::depth] = after;
    }
  }

 private:
  static constexpr std::int32_t most_trust = 4;

  dependent<std::vector<std::int32_t>, Use> next_ = {};  ///< per name
};

}  // namespace wreload
