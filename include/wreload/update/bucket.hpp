#pragma once
/// Buckets: tensors that lie in one block of memory. A bucket that comes again in a later update costs no work per tensor.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/on_use.hpp"
#include "../core/prefetch.hpp"
#include "../core/status.hpp"
#include "options.hpp"

namespace wreload {

/// Tensors in one block of memory, of the `memory` kind that each piece says.
///
///   pieces    their data pointers lie in [base, base + bytes): built once, for every update. (Where the engine has its
///             pieces anew each time, they may as well point into the block itself: base null)
///   manifest  the caller's number for everything but `data`: names, dtypes, shapes, boxes, forms, places in the block,
///             memory kinds and their order. The same number must mean the same again. 0: `manifest_of` is computed
///   base      null: data
///   data      where the block lies this time; the bytes of a piece are read at data + (its pointer - base)
struct bucket {
  std::span<const piece> pieces = {};
  std::uint64_t manifest = 0;
  const void* base = nullptr;
  const void* data = nullptr;
  std::int64_t bytes = 0;
};

namespace detail {

/// A chain of 64 x 64 -> 128 bit products, two words a step (after wyhash).
class word_hash {
 public:
  void add(std::uint64_t a, std::uint64_t b) {
    __extension__ using wide = unsigned __int128;
    const wide product = static_cast<wide>(a ^ state_) * (b ^ 0xE7037ED1A0B428DBU);
    state_ = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  }
  void add(std::string_view text) {
    for (; text.size() >= 16; text.remove_prefix(16)) add(word(text, 8), word(text.substr(8), 8));
    const std::string_view rest = text.size() > 8 ? text.substr(8) : std::string_view();
    if (!text.empty()) add(word(text, text.size() < 8 ? text.size() : 8), word(rest, rest.size()));
  }
  void add(const shape& dims) {
    for (int dim = 0; dim < dims.rank(); dim += 2) add(number(dims[dim]), dim + 1 < dims.rank() ? number(dims[dim + 1]) : 0);
  }
  std::uint64_t value() const { return state_; }

  static std::uint64_t number(std::int64_t value) { return static_cast<std::uint64_t>(value); }

 private:
  static std::uint64_t word(std::string_view text, std::size_t bytes) {
    std::uint64_t found = 0;
    if (bytes == 8)
      std::memcpy(&found, text.data(), 8);
    else if (bytes > 0)
      std::memcpy(&found, text.data(), bytes);
    return found;
  }

  std::uint64_t state_ = 0xA0761D6478BD642FU;
};

/// Hash of a piece in a block; chains of different pieces run side by side.
inline std::uint64_t hash_of(const piece& each, const void* base) {
  word_hash hash;
  const auto byte = [](auto value, unsigned place) { return static_cast<std::uint64_t>(value) << (8 * place); };
  const tensor_ref& tensor = each.tensor;
  hash.add(byte(tensor.type, 0) | byte(tensor.memory, 1) | byte(each.form, 2) | byte(each.part.whole, 3) |
               byte(tensor.extents.rank(), 4) | byte(tensor.strides.rank(), 5) | byte(each.part.offset.rank(), 6) |
               byte(each.part.extent.rank(), 7),
           static_cast<std::uint32_t>(each.id.index) | byte(each.name.size(), 4));
  const bool is_null = tensor.data == nullptr;
  hash.add(is_null ? 0 : reinterpret_cast<std::uintptr_t>(tensor.data) - reinterpret_cast<std::uintptr_t>(base), is_null);
  hash.add(each.name);
  hash.add(tensor.extents);
  hash.add(tensor.strides);
  hash.add(each.part.offset);
  hash.add(each.part.extent);
  return hash.value();
}

/// The block's addresses that the elements of a tensor take, counted from its first element.
struct byte_range {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// False where the extents make no sense, or overflow.
inline bool find_range(const tensor_ref& tensor, byte_range* found) {
  if (!tensor.extents.valid()) return false;
  const std::int64_t element = bytes_of(tensor.type);
  *found = {0, tensor.extents.elements() == 0 ? 0 : element};
  if (tensor.extents.elements() == 0) return true;
  if (tensor.row_major()) {
    found->last = tensor.bytes();
    return true;
  }
  if (tensor.strides.rank() != tensor.extents.rank()) return false;
  for (int dim = 0; dim < tensor.extents.rank(); ++dim) {
    std::int64_t reach = 0;
    if (!checked_multiply(tensor.strides[dim], tensor.extents[dim] - 1, reach) || !checked_multiply(reach, element, reach) ||
        __builtin_add_overflow(reach < 0 ? found->first : found->last, reach, reach < 0 ? &found->first : &found->last))
      return false;
  }
  return true;
}

/// Points the pieces of a bucket to where the block lies. Refuses, by name, one that reaches out of the block.
template <class Pieces>
status point_into(const bucket& from, Pieces& pieces) {
  pieces.assign(from.pieces.begin(), from.pieces.end());
  const auto base = reinterpret_cast<std::uintptr_t>(from.base == nullptr ? from.data : from.base);
  for (piece& each : pieces) {
    byte_range range;
    if (!find_range(each.tensor, &range)) {
      if (each.tensor.extents.valid() && each.tensor.strides.rank() == each.tensor.extents.rank())
        return refuse(error_code::bad_argument, each.name, "strides that stay in the block", "strides that overflow");
      continue;  // refused by its shape or strides, or not read
    }
    if (range.first == range.last) continue;  // no elements
    const auto place = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(each.tensor.data) - base);
    if (each.tensor.data == nullptr || from.data == nullptr || place < 0 || place + range.first < 0 ||
        place > from.bytes || range.last > from.bytes - place)
      return refuse(error_code::bad_argument, each.name, "a tensor inside its bucket of " + std::to_string(from.bytes) + " bytes",
                    to_string(each.tensor) + " at byte " + std::to_string(place));
    each.tensor.data = static_cast<const std::byte*>(from.data) + place;
  }
  return {};
}

}  // namespace detail

/// The manifest that `load` would compute: a hash (64 bits, never 0) of everything in a bucket but `data`.
inline std::uint64_t manifest_of(const bucket& of) {
  const void* base = of.base == nullptr ? of.data : of.base;
  detail::word_hash hash;
  hash.add(detail::word_hash::number(of.bytes), of.pieces.size());
  std::uint64_t even = 0;
  constexpr std::size_t ahead = 16;  // names lie anywhere
  for (std::size_t i = 0; i < of.pieces.size(); ++i) {
    if (i + ahead < of.pieces.size()) wreload::prefetch(of.pieces[i + ahead].name.data());
    const std::uint64_t each = detail::hash_of(of.pieces[i], base);
    if (i % 2 == 0 && i + 1 < of.pieces.size())
      even = each;
    else
      hash.add(i % 2 == 0 ? 0 : even, each);
  }
  return hash.value() == 0 ? 1 : hash.value();
}

}  // namespace wreload
