#pragma once
/// `prefetch`: starts to fetch a cache line.

namespace wreload {

/// Starts to fetch what lies at an address, any address. GCC drops calls of functions that do nothing but
/// `__builtin_prefetch`, since these seem to have no effect; the empty statement is one.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  __asm__ __volatile__("" : : "r"(address));
}

}  // namespace wreload
