#pragma once
/// `checkpoint_names`: every name under which a tensor of a model may be loaded, and the way from it to the tensor.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/name_index.hpp"
#include "../core/on_use.hpp"
#include "../core/prefetch.hpp"
#include "../core/status.hpp"
#include "records.hpp"

namespace wreload {

/// A source has a name of its own, and other spellings of it. Texts are kept here and never move; names are numbered at
/// `index`, and a source's own number is followed by those of its other spellings.
template <class Use = on_use>
class basic_checkpoint_names {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;

 public:
  basic_checkpoint_names() = default;
  basic_checkpoint_names(const basic_checkpoint_names&) = delete;  // records point to its texts
  basic_checkpoint_names& operator=(const basic_checkpoint_names&) = delete;

  /// A copy of a text that stays where it is.
  std::string_view keep(std::string_view text) {
    static constexpr std::size_t block_bytes = 1 << 16;
    if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < text.size())
      blocks_.emplace_back().reserve(std::max(text.size(), block_bytes));
    vector<char>& block = blocks_.back();
    const std::size_t first = block.size();
    block.insert(block.end(), text.begin(), text.end());
    return {block.data() + first, text.size()};
  }

  /// Another name of a source; takes effect at `index`.
  void add_spelling(std::int32_t source, std::string_view name) { spellings_.emplace_back(source, keep(name)); }

  /// Numbers the names of all sources; refuses one that two sources have.
  status index(vector<source_record>& sources) {
    std::stable_sort(spellings_.begin(), spellings_.end(), [](auto& a, auto& b) { return a.first < b.first; });
    names_.reserve(sources.size() + spellings_.size());
    texts_.reserve(names_.capacity());
    auto other = spellings_.begin();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      sources[i].first_name = static_cast<std::int32_t>(names_.size());
      if (status refused = add(sources[i].name, {id, 0}, sources[i]); !refused.ok()) return refused;
      for (std::int32_t s = 1; other != spellings_.end() && other->first == id; ++other) {
        if (is_name_of(sources[i], s, other->second)) continue;  // another layer has said it
        if (status refused = add(other->second, {id, s++}, sources[i]); !refused.ok()) return refused;
      }
    }
    vector<std::pair<std::int32_t, std::string_view>>().swap(spellings_);
    return {};
  }

  std::size_t size() const { return names_.size(); }
  name_record operator[](std::int32_t id) const { return at(names_, id); }
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }

  /// The number of a name, or -1.
  std::int32_t find(std::string_view name) const { return find(name, name_index::hash_of(name)); }
  std::int32_t find(std::string_view name, std::uint32_t hash) const {
    return index_.find(name, hash, [this](std::int32_t id) { return text_of(id); });
  }
  /// Starts to fetch what a look-up reads: in three steps, each of which reads what the one before has fetched.
  void prefetch_slot(std::uint32_t hash) const { index_.prefetch(hash); }
  std::int32_t prefetch_text_of(std::uint32_t hash) const {
    const std::int32_t id = index_.candidate(hash);
    if (id != no_index) wreload::prefetch(&at(texts_, id));
    return id;
  }
  void prefetch_text(std::int32_t id) const {
    if (id == no_index) return;
    wreload::prefetch(text_of(id).data());
    wreload::prefetch(text_of(id).data() + text_of(id).size());
  }
  /// Starts to fetch what a name stands for.
  void prefetch_record(std::int32_t id) const { wreload::prefetch(&at(names_, id)); }

  std::string_view text_of(std::int32_t id) const { return at(texts_, id); }

 private:
  /// Whether one of the other spellings before number `end` is this one.
  bool is_name_of(const source_record& source, std::int32_t end, std::string_view name) const {
    for (std::int32_t s = 1; s < end; ++s)
      if (at(texts_, source.first_name + s) == name) return true;
    return false;
  }

  status add(std::string_view name, name_record record, const source_record& source) {
    if (find(name) != no_index)
      return refuse(error_code::bad_layout, name, "one tensor of that name",
                    "a second one, a spelling of " + std::string(source.name));
    index_.add(name, static_cast<std::int32_t>(names_.size()));
    names_.push_back(record);
    texts_.push_back(name);
    return {};
  }

  vector<name_record> names_ = {};
  vector<std::string_view> texts_ = {};  ///< per name
  basic_name_index<Use> index_ = {};
  vector<vector<char>> blocks_ = {};     ///< of all texts
  vector<std::pair<std::int32_t, std::string_view>> spellings_ = {};  ///< until `index`: source, another name
};

}  // namespace wreload
