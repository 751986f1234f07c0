#pragma once
/// Digests that add up: one number per tile of a tensor, the same however the tile is cut over ranks.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/config.hpp"

namespace wreload {

/// A tile of a tensor in matrix form.
inline constexpr std::int64_t digest_tile_rows = 256;
inline constexpr std::int64_t digest_tile_cols = 4096;

namespace detail {

/// An odd number per index; the mix is that of splitmix64.
WRELOAD_HOST_DEVICE constexpr std::uint64_t digest_odd(std::uint64_t index) {
  std::uint64_t mixed = (index + 1) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return (mixed ^ (mixed >> 31)) | 1;
}

}  // namespace detail

/// The weights of a tile's row, and of a half-word (2 bytes) in a row: odd numbers.
WRELOAD_HOST_DEVICE constexpr std::uint64_t digest_row_weight(std::uint32_t row) {
  return detail::digest_odd((std::uint64_t{1} << 32) + row);
}
WRELOAD_HOST_DEVICE constexpr std::uint64_t digest_half_weight(std::uint32_t half) { return detail::digest_odd(half); }

/// One element's share of the digest of its tile. Elements are seen as the little-endian half-words of their row of the
/// tile; the digest is the sum mod 2^64 of
///
///   row weight * half-word weight * (the half-word's bits)
///
/// so it is linear: the order of elements does not matter, and digests of disjoint parts of a tile add up to the tile's.
///
///   row, col       of the element in the matrix form of the *global* tensor (all ranks together)
///   element_bytes  1 (half a half-word), 2, 4 or 8
///   value_bits     its bit pattern, zero-extended; packed formats: the byte
///
/// Shows:     always: one changed element of 1, 2 or 4 bytes; a swap of two different elements of 1 or 2 bytes, wherever
///            they lie in the tile (tests/numerics/digest_test.cpp goes through all pairs of weights). Any other
///            difference is missed by chance, at worst about 2^-48 (all changes in the top bits of half-words), for
///            most about 2^-60. Tiles are told apart by name and place, not by their digest: where a tile lies in the
///            tensor does not enter it, nor how many zeros surround it
/// Against accidents, not against an adversary: linear sums are easy to forge. The function is the format: from now on it
/// does not change
WRELOAD_HOST_DEVICE constexpr std::uint64_t digest_element(std::int64_t row, std::int64_t col, int element_bytes,
                                                           std::uint64_t value_bits) {
  const auto first = static_cast<std::uint32_t>(col % digest_tile_cols * element_bytes);  // byte of the tile's row
  std::uint64_t sum = 0;
  for (std::uint32_t half = 0; 2 * half < static_cast<std::uint32_t>(element_bytes); ++half)
    sum += digest_half_weight(first / 2 + half) * (((value_bits >> (16 * half)) & 0xFFFF) << (8 * (first % 2)));
  return digest_row_weight(static_cast<std::uint32_t>(row % digest_tile_rows)) * sum;
}

/// The digest of a part of one tile in host memory: the sum of `digest_element`, two bytes a multiply.
///
///   data      (rows, row_bytes / element) contiguous elements a row
///   row       of the first element, 0..255; `first_byte`: where it begins in its row of the tile
template <class = void>
std::uint64_t digest_rows(const std::byte* data, std::int64_t rows, std::int64_t row_bytes, std::int64_t row_stride_bytes,
                          std::int64_t row, std::int64_t first_byte) {
  constexpr std::int64_t most = 1024;  // half-words whose weights are kept at a time
  std::uint64_t weights[most];
  std::uint64_t sum = 0;
  for (std::int64_t done = 0; done < row_bytes;) {
    const std::int64_t begin = first_byte + done, half = begin / 2, odd = begin % 2;
    const std::int64_t bytes = row_bytes - done < 2 * most - odd ? row_bytes - done : 2 * most - odd;
    const std::int64_t halves = (odd + bytes + 1) / 2, whole = (bytes - odd) / 2;
    for (std::int64_t h = 0; h < halves; ++h) weights[h] = digest_half_weight(static_cast<std::uint32_t>(half + h));
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::byte* from = data + r * row_stride_bytes + done;
      std::uint64_t share = 0;
      if (odd != 0) share += weights[0] * (std::to_integer<std::uint64_t>(*from) << 8);
      for (std::int64_t h = 0; h < whole; ++h) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from + odd + 2 * h, sizeof bits);
        share += weights[odd + h] * bits;
      }
      if (odd + 2 * whole < bytes) share += weights[odd + whole] * std::to_integer<std::uint64_t>(from[bytes - 1]);
      sum += digest_row_weight(static_cast<std::uint32_t>(row + r)) * share;
    }
    done += bytes;
  }
  return sum;
}

}  // namespace wreload
