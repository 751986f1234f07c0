#pragma once
/// Counts this process's use of the heap through `operator new`, and lets it fail. Replaces the global operators, so exactly one C++ file of
/// an executable may include it. (nvcc takes such operators for device code too: there a CUDA file only counts, and a C++
/// file beside it, tests/cuda/heap_counter.cpp, replaces them.)

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace wreload::test {

struct heap_use {
  std::int64_t allocations = 0;  ///< so far
  std::int64_t bytes = 0;        ///< now in use
};

namespace heap_detail {
inline std::atomic<std::int64_t> allocations = 0;
inline std::atomic<std::int64_t> bytes = 0;

/// Of the calling thread: allocations until one fails (negative: none does), and whether all after it do.
struct shortage {
  std::int64_t left = -1;
  bool lasts = false;
  bool has_hit = false;
};
inline thread_local shortage short_of = {};

inline void* take(std::size_t size, std::size_t alignment) {
  if (short_of.left >= 0 && short_of.left-- == 0) {
    if (short_of.lasts) short_of.left = 0;
    short_of.has_hit = true;
    throw std::bad_alloc();
  }
  void* block = alignment <= alignof(std::max_align_t)
                    ? std::malloc(size == 0 ? 1 : size)
                    : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (block == nullptr) std::abort();
  ++allocations;
  bytes += static_cast<std::int64_t>(malloc_usable_size(block));
  return block;
}
inline void give(void* block) {
  if (block == nullptr) return;
  bytes -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}
}  // namespace heap_detail

inline heap_use heap_now() { return {heap_detail::allocations.load(), heap_detail::bytes.load()}; }

/// The calls given to it see a heap of which the allocation after `allocations` of theirs fails; where it `lasts`, all
/// that follow as well.
class heap_shortage {
 public:
  explicit heap_shortage(std::int64_t allocations, bool lasts = false) : now_{allocations, lasts, false} {}

  template <class Call>
  decltype(auto) during(Call&& call) {
    struct swapped {
      heap_detail::shortage& mine;
      explicit swapped(heap_detail::shortage& now) : mine(now) { std::swap(mine, heap_detail::short_of); }
      ~swapped() { std::swap(mine, heap_detail::short_of); }
    } const armed(now_);
    return call();
  }
  bool has_hit() const { return now_.has_hit; }

 private:
  heap_detail::shortage now_;
};

}  // namespace wreload::test

#if !defined(__CUDACC__)
void* operator new(std::size_t size) { return wreload::test::heap_detail::take(size, 0); }
void* operator new[](std::size_t size) { return wreload::test::heap_detail::take(size, 0); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {  // a sanitizer's would not match `delete`
  try {
    return wreload::test::heap_detail::take(size, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return wreload::test::heap_detail::take(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return wreload::test::heap_detail::take(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { wreload::test::heap_detail::give(block); }
void operator delete[](void* block) noexcept { wreload::test::heap_detail::give(block); }
void operator delete(void* block, std::size_t) noexcept { wreload::test::heap_detail::give(block); }
void operator delete[](void* block, std::size_t) noexcept { wreload::test::heap_detail::give(block); }
void operator delete(void* block, std::align_val_t) noexcept { wreload::test::heap_detail::give(block); }
void operator delete[](void* block, std::align_val_t) noexcept { wreload::test::heap_detail::give(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { wreload::test::heap_detail::give(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { wreload::test::heap_detail::give(block); }
#endif
