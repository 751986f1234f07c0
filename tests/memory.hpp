#pragma once
/// Memory for suites that run on any executor. `test_memory<Executor>` owns what the engine of a test would own:
/// allocations with poison inside and guard bytes around, sources that `load` reads, and streams.
///
///   allocate(bytes, poison)  bytes of runtime storage, all `poison`; at least one byte
///   in_arena(bytes)          makes an arena, out of which `allocate` takes from then on. In mode swap the first `allocate`
///                            makes a small one. `arena()`: null without
///   write, read              between host memory and an allocation (or a place inside one)
///   free(first)              gives an allocation back; the destructor frees the rest
///   guards_intact()          whether nobody wrote outside the allocations
///   place(bytes, count)      a copy that `load` may read, with the memory kind to say so; exactly `count` bytes, so that
///                            a sanitizer sees a read beyond it. Lives until `drop_sources`
///   stream(index)            one of a few streams; null on the host
///
/// The CUDA executor has its specialisation in tests/cuda_memory.cuh.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <stdexcept>

#include <wreload/executor/host.hpp>

#include "update_mode.hpp"

namespace wreload::test {

/// Where `place` has put a source.
struct placed_source {
  const void* data = nullptr;
  memory_kind memory = memory_kind::pageable;
};

template <class Executor>
class test_memory;

/// The arena of a test's memory.
template <class Arena>
class arena_memory {
 public:
  /// Spare pages too.
  void open(std::int64_t bytes, std::int64_t piece_bytes) {
    pages_ = std::make_unique<Arena>();
    if (const status failed = pages_->open({.bytes = bytes, .piece_bytes = piece_bytes, .spare = true}); !failed.ok())
      throw std::runtime_error(failed.message());
  }
  std::byte* take(std::int64_t bytes) {
    std::byte* block = pages_->take(bytes, 256);
    if (block == nullptr) throw std::runtime_error("the test's arena is too small");
    return block;
  }
  Arena* get() const { return pages_.get(); }

 private:
  std::unique_ptr<Arena> pages_ = {};
};
inline constexpr std::int64_t small_arena_bytes = std::int64_t{1} << 20;

/// Runtime memory as a launcher of a test's own sees it, in the order of its stream: `read` and `write` copy from and to
/// host memory.
template <class Executor>
struct launch_memory;

template <>
struct launch_memory<host_executor> {
  static void read(stream_ref, void* to, const std::byte* from, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  static void write(stream_ref, std::byte* to, const void* from, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
};

template <>
class test_memory<host_executor> {
 public:
  void in_arena(std::int64_t bytes) { arena_.open(bytes, 4096); }
  host_arena* arena() const { return arena_.get(); }

  std::byte* allocate(std::int64_t bytes, std::byte poison) {
    if (arena() != nullptr || mode_under_test() == update_mode::swap) return allocate_in_arena(bytes, poison);
    std::vector<std::byte> block(static_cast<std::size_t>(bytes + 2 * guard_bytes), guard);
    std::memset(block.data() + guard_bytes, std::to_integer<int>(poison), static_cast<std::size_t>(bytes));
    std::byte* first = block.data() + guard_bytes;
    blocks_.emplace(first, std::move(block));
    return first;
  }
  void write(std::byte* to, const void* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) const {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void free(std::byte* first) { blocks_.erase(first); }

  bool guards_intact() const {
    for (const auto& [first, block] : blocks_)
      for (std::size_t i = 0; i < guard_bytes; ++i)
        if (block[i] != guard || block[block.size() - 1 - i] != guard) return false;
    return true;
  }

  placed_source place(const void* bytes, std::int64_t count) {
    auto copy = std::make_unique<std::byte[]>(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(copy.get(), bytes, static_cast<std::size_t>(count));
    const std::lock_guard guarded(lock_);
    sources_.push_back(std::move(copy));
    return {sources_.back().get(), memory_kind::pageable};
  }
  void drop_sources() { sources_.clear(); }

  stream_ref stream(int) const { return {}; }

 private:
  static constexpr std::size_t guard_bytes = 64;
  static constexpr std::byte guard{0x6B};

  std::byte* allocate_in_arena(std::int64_t bytes, std::byte poison) {
    if (arena() == nullptr) in_arena(small_arena_bytes);
    std::byte* block = arena_.take(bytes + 2 * guard_bytes);
    std::memset(block, std::to_integer<int>(guard), static_cast<std::size_t>(bytes + 2 * guard_bytes));
    std::memset(block + guard_bytes, std::to_integer<int>(poison), static_cast<std::size_t>(bytes));
    in_arena_.emplace_back(block + guard_bytes, bytes);
    return block + guard_bytes;
  }

  std::map<std::byte*, std::vector<std::byte>> blocks_ = {};
  arena_memory<host_arena> arena_ = {};
  std::vector<std::pair<std::byte*, std::int64_t>> in_arena_ = {};  ///< first byte and size
  std::vector<std::unique_ptr<std::byte[]>> sources_ = {};
  std::mutex lock_ = {};
};

}  // namespace wreload::test
