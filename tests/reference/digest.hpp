#pragma once
/// Digests from the definition, byte by byte. Shares nothing with the library.

#include <cstdint>

namespace reference {

/// splitmix64 of a counter, made odd.
inline std::uint64_t digest_weight(std::uint64_t counter) {
  std::uint64_t z = (counter + 1) * 11400714819323198485ULL;
  z = (z ^ z / 1073741824) * 13787848793156543929ULL;
  z = (z ^ z / 134217728) * 10723151780598845931ULL;
  z ^= z / 2147483648;
  return z % 2 == 0 ? z + 1 : z;
}

/// What one byte adds to the digest of its tile. `byte` counts the bytes of its row of the whole tensor.
inline std::uint64_t digest_share(std::int64_t row, std::int64_t byte, int element_bytes, std::uint8_t value) {
  const std::int64_t place = byte % (4096 * std::int64_t{element_bytes});
  const std::uint64_t weight = digest_weight(4294967296ULL + static_cast<std::uint64_t>(row % 256)) *
                               digest_weight(static_cast<std::uint64_t>(place / 2));
  return weight * (place % 2 == 0 ? value : 256ULL * value);
}

/// Of an element, as `bytes` little-endian bytes.
inline std::uint64_t digest_element(std::int64_t row, std::int64_t col, int bytes, std::uint64_t value) {
  std::uint64_t sum = 0;
  for (int i = 0; i < bytes; ++i)
    sum += digest_share(row, col * bytes + i, bytes, static_cast<std::uint8_t>(value >> (8 * i)));
  return sum;
}

}  // namespace reference
