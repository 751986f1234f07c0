#pragma once
/// `prefetch`: starts to fetch a cache line.

#include <cstddef>

namespace wreload {

/// Starts to fetch what lies at an address, any address. GCC drops calls of functions that do nothing but
/// `__builtin_prefetch`, since these seem to have no effect; the empty statement is one.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  __asm__ __volatile__("" : : "r"(address));
}

/// The same for all of a record.
template <class Record>
void prefetch_all(const Record& record) {
  for (std::size_t i = 0; i < sizeof record; i += 64) prefetch(reinterpret_cast<const char*>(&record) + i);
}

}  // namespace wreload
