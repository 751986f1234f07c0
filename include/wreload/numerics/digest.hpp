#pragma once
/// Digests that add up: one number per tile of a tensor, the same however the tile is cut over ranks.

#include <cstdint>

#include "../core/config.hpp"

namespace wreload {

/// One element's share of a digest. The digest of a set of elements is the wrapping sum of their shares, so the order
/// of elements does not matter and the digests of disjoint parts add up to the digest of the whole.
///
///   global_index  linear index of the element in the *global* tensor (all ranks together)
///   value_bits    its bit pattern, zero-extended; packed formats: the byte
///
/// Meaning:   index and value are mixed non-linearly, so moving or swapping values changes the sum (but for a chance
///            of about 2^-64); for one index the share is a bijection of the value: one changed element always shows.
///            Against accidents, not against an adversary. The function is part of the format: never change it
/// Cost:      three 64-bit multiplies
WRELOAD_HOST_DEVICE constexpr std::uint64_t digest_element(std::uint64_t global_index, std::uint64_t value_bits) {
  // Odd multipliers: the fractional bits of sqrt(2), sqrt(3) and sqrt(7), the lowest bit set.
  std::uint64_t mixed = (global_index + 0x3C6EF372FE94F82BU) * 0x6A09E667F3BCC909U;
  mixed ^= (mixed >> 32) ^ value_bits;
  mixed = (mixed ^ (mixed >> 23)) * 0xBB67AE8584CAA73BU;
  mixed = (mixed ^ (mixed >> 32)) * 0xA54FF53A5F1D36F1U;
  return mixed ^ (mixed >> 31);
}

static_assert(digest_element(0, 1) + digest_element(1, 0) != digest_element(0, 0) + digest_element(1, 1));

}  // namespace wreload
