#pragma once
/// Buckets: tensors that lie in one block of memory. A bucket that comes again in a later update costs no work per
/// tensor.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "../core/prefetch.hpp"
#include "../core/status.hpp"
#include "options.hpp"

namespace wreload {

/// Tensors in one block of memory, of the `memory` kind that each piece says.
///
///   pieces    their data pointers lie in [base, base + bytes). So they can be built once, for every update; or, with
///             base null, anew for each, and then they point into the block itself
///   manifest  the caller's number for everything but `data`: names or ids, dtypes, shapes, strides, boxes, forms, places
///             in the block, memory kinds, their order, and `bytes`. The same number must mean the same again: that is
///             not checked. 0: `manifest_of` is computed
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

/// Both halves of the 128-bit product of two words (after wyhash).
inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  __extension__ using wide = unsigned __int128;
  const wide product = static_cast<wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

/// A sum of folds, each with keys of its own: none waits for the one before.
class word_hash {
 public:
  void add(std::uint64_t a, std::uint64_t b) {
    sum_ += fold(a ^ key_, b ^ (key_ + 0xE7037ED1A0B428DBU));
    key_ += 0x9E3779B97F4A7C15U;
  }
  /// 16 bytes a step; the last ones overlap. Requires: the size is added too.
  void add(std::string_view text) {
    const char* at = text.data();
    const std::size_t size = text.size();
    if (size >= 16) {
      for (std::size_t i = 0; i + 16 < size; i += 16) add(word<std::uint64_t>(at + i), word<std::uint64_t>(at + i + 8));
      add(word<std::uint64_t>(at + size - 16), word<std::uint64_t>(at + size - 8));
    } else if (size >= 8) {
      add(word<std::uint64_t>(at), word<std::uint64_t>(at + size - 8));
    } else if (size >= 4) {
      add(word<std::uint32_t>(at), word<std::uint32_t>(at + size - 4));
    } else if (size > 0) {
      add(word<std::uint8_t>(at), word<std::uint8_t>(at + size / 2) << 8U | word<std::uint8_t>(at + size - 1));
    }
  }
  void add(const shape& dims, int first = 0) {
    for (int dim = first; dim < dims.rank(); dim += 2) add(dim_of(dims, dim), dim_of(dims, dim + 1));
  }
  std::uint64_t value() const { return fold(sum_ ^ key_, 0xA0761D6478BD642FU); }

  static std::uint64_t dim_of(const shape& dims, int dim) {
    return dim < dims.rank() ? static_cast<std::uint64_t>(dims[dim]) : 0;
  }

 private:
  template <class Word>
  static std::uint64_t word(const char* at) {
    Word found = 0;
    std::memcpy(&found, at, sizeof found);
    return found;
  }

  std::uint64_t sum_ = 0;
  std::uint64_t key_ = 0xA0761D6478BD642FU;
};

/// Hash of a piece in a block.
inline std::uint64_t hash_of(const piece& each, const void* base) {
  word_hash hash;
  const auto byte = [](auto value, unsigned place) { return static_cast<std::uint64_t>(value) << (8 * place); };
  const tensor_ref& tensor = each.tensor;
  const box& part = each.part;
  const bool is_null = tensor.data == nullptr;
  hash.add(byte(tensor.type, 0) | byte(tensor.memory, 1) | byte(each.form, 2) | byte(part.whole, 3) |
               byte(is_null, 3) << 1U | byte(tensor.extents.rank(), 4) | byte(tensor.strides.rank(), 5) |
               byte(part.offset.rank(), 6) | byte(part.extent.rank(), 7),
           static_cast<std::uint32_t>(each.id.index) | byte(each.name.size(), 4));
  const auto place = reinterpret_cast<std::uintptr_t>(tensor.data) - reinterpret_cast<std::uintptr_t>(base);
  hash.add(is_null ? 0 : place, word_hash::dim_of(tensor.extents, 0));
  hash.add(tensor.extents, 1);
  hash.add(each.name);
  if ((tensor.strides.rank() | part.offset.rank() | part.extent.rank()) == 0) return hash.value();
  hash.add(tensor.strides);
  hash.add(part.offset);
  hash.add(part.extent);
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
  constexpr std::size_t ahead = 16;
  std::uint64_t chain = detail::fold(static_cast<std::uint64_t>(of.bytes) ^ 0x8EBC6AF09C88C6E3U, of.pieces.size() + 1);
  for (std::size_t i = 0; i < of.pieces.size(); ++i) {
    // Pieces are long, and names lie anywhere.
    if (i + ahead < of.pieces.size()) prefetch(of.pieces[i + ahead].name.data());
    if (i + 3 * ahead < of.pieces.size()) prefetch_all(of.pieces[i + 3 * ahead]);
    chain = detail::fold(chain ^ 0x589965CC75374CC3U, detail::hash_of(of.pieces[i], base) ^ 0x1D8E4E27C47D124FU);
  }
  return chain == 0 ? 1 : chain;
}

}  // namespace wreload
