#pragma once
/// What an arena is: memory for the weights of a model whose pages can be exchanged and given back while the addresses
/// stay.

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "../core/status.hpp"

namespace wreload {

/// What an arena is made of.
///
///   bytes        of one generation of weights, alignment gaps included
///   piece_bytes  physical pieces; large ones exchange faster. Rounded up to what the device can map
///   spare        also a second generation of pages, as mode swap needs; as much memory again
///   device       -1: the calling thread's current one
struct arena_options {
  std::int64_t bytes = 0;
  std::int64_t piece_bytes = std::int64_t{1} << 30;
  bool spare = false;
  int device = -1;
};

/// Every call belongs to one thread at a time.
///
///   open(options)        reserves the addresses and takes the pages; once
///   take(bytes, align)   the next free bytes of the live addresses; null where there is no room
///   data(), bytes()      the live addresses: what engines register and graphs bake in
///   spare()              other addresses of as many bytes, for the pages of the other generation; null without
///   open_spare()         puts them there: after an exchange those addresses mean nothing until this call. Requires:
///                        nothing reads or writes them
///   exchange(&torn)      the live addresses get the pages of the other generation. Requires: nothing reads or writes
///                        either range. After an error they are as before, or `torn` is set and neither holds anything
///   drop(), restore()    gives all pages back; takes new ones, of unknown contents, at the same addresses. Requires: as
///                        `exchange`. After an error of either the arena holds no pages
///   is_resident()        whether there are pages
///   allocated_bytes()    of all pages held
template <class Arena>
concept arena = requires(Arena& pages, const arena_options& options, std::int64_t bytes, bool* torn) {
  { pages.open(options) } -> std::same_as<status>;
  { pages.take(bytes, bytes) } -> std::same_as<std::byte*>;
  { pages.data() } -> std::same_as<std::byte*>;
  { pages.bytes() } -> std::same_as<std::int64_t>;
  { pages.spare() } -> std::same_as<std::byte*>;
  { pages.open_spare() } -> std::same_as<status>;
  { pages.exchange(torn) } -> std::same_as<status>;
  { pages.drop() } -> std::same_as<status>;
  { pages.restore() } -> std::same_as<status>;
  { pages.is_resident() } -> std::same_as<bool>;
  { pages.allocated_bytes() } -> std::same_as<std::int64_t>;
};

namespace detail {

/// Deals bytes of one range out, first come first served.
class bump_pointer {
 public:
  void use(std::byte* data, std::int64_t bytes) { data_ = data, bytes_ = bytes, taken_ = 0; }
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

  std::byte* take(std::int64_t bytes, std::int64_t alignment) {
    const std::int64_t begin = (taken_ + alignment - 1) / alignment * alignment;
    if (bytes < 0 || bytes > bytes_ - begin) return nullptr;
    taken_ = begin + bytes;
    return data_ + begin;
  }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t taken_ = 0;
};

inline status bad_arena(const arena_options& options) {
  return refuse(error_code::bad_argument, "arena", "a size, and pieces of at least one byte",
                std::to_string(options.bytes) + " bytes in pieces of " + std::to_string(options.piece_bytes));
}

}  // namespace detail
}  // namespace wreload
