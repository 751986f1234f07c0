#pragma once
/// Device loads and stores of elements at any alignment, and of 16-byte vectors from misaligned sources.

#include <cstddef>
#include <cstdint>

#include "../core/config.hpp"

namespace wreload {
namespace kernel WRELOAD_HIDDEN {

__device__ inline std::uint32_t misalignment(const void* address, std::uint32_t bytes) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address)) & (bytes - 1);
}

/// An unsigned integer at any alignment.
template <class Bits>
__device__ Bits load_any(const std::byte* from) {
  if (misalignment(from, sizeof(Bits)) == 0) return *reinterpret_cast<const Bits*>(from);
  std::uint64_t value = 0;
  for (unsigned i = 0; i < sizeof(Bits); ++i) value |= std::uint64_t{static_cast<std::uint8_t>(from[i])} << (8 * i);
  return static_cast<Bits>(value);
}

template <class Bits>
__device__ void store_any(std::byte* to, Bits value) {
  if (misalignment(to, sizeof(Bits)) == 0) {
    *reinterpret_cast<Bits*>(to) = value;
    return;
  }
  for (unsigned i = 0; i < sizeof(Bits); ++i)
    to[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
}

/// The same for a size known at run time: 1, 2, 4 or 8 bytes.
__device__ inline std::uint64_t load_any(const std::byte* from, int bytes) {
  switch (bytes) {
    case 1: return load_any<std::uint8_t>(from);
    case 2: return load_any<std::uint16_t>(from);
    case 4: return load_any<std::uint32_t>(from);
    default: return load_any<std::uint64_t>(from);
  }
}

__device__ inline void store_any(std::byte* to, std::uint64_t value, int bytes) {
  switch (bytes) {
    case 1: return store_any(to, static_cast<std::uint8_t>(value));
    case 2: return store_any(to, static_cast<std::uint16_t>(value));
    case 4: return store_any(to, static_cast<std::uint32_t>(value));
    default: return store_any(to, value);
  }
}

/// 16 bytes from an address that is a multiple of `Alignment`: 16 or 4.
template <int Alignment>
__device__ uint4 load_vector(const std::byte* from) {
  if constexpr (Alignment == 16) {
    return *reinterpret_cast<const uint4*>(from);
  } else {
    static_assert(Alignment == 4);
    const auto* words = reinterpret_cast<const std::uint32_t*>(from);
    return {words[0], words[1], words[2], words[3]};
  }
}

/// 16 bytes from byte `shift` of the first of two vectors that follow each other; 0 < shift < 16.
__device__ inline uint4 shifted_vector(const uint4& first, const uint4& second, std::uint32_t shift) {
  const std::uint32_t words[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  std::uint32_t from[5];  // words shift / 4 and on
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    const std::uint32_t near = (shift & 4) != 0 ? words[i + 1] : words[i];
    const std::uint32_t far = (shift & 4) != 0 ? words[i + 3 < 8 ? i + 3 : 7] : words[i + 2];
    from[i] = (shift & 8) != 0 ? far : near;
  }
  const std::uint32_t bits = 8 * (shift & 3);
  return {__funnelshift_r(from[0], from[1], bits), __funnelshift_r(from[1], from[2], bits),
          __funnelshift_r(from[2], from[3], bits), __funnelshift_r(from[3], from[4], bits)};
}

}  // namespace kernel
}  // namespace wreload
