#pragma once
/// Memory for suites that run on any executor. `test_memory<Executor>` owns what the engine of a test would own:
/// allocations with poison inside and guard bytes around, sources that `load` reads, and streams.
///
///   allocate(bytes, poison)  bytes of runtime storage, all `poison`; at least one byte
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

#include <wreload/executor/host.hpp>

namespace wreload::test {

/// Where `place` has put a source.
struct placed_source {
  const void* data = nullptr;
  memory_kind memory = memory_kind::pageable;
};

template <class Executor>
class test_memory;

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
  std::byte* allocate(std::int64_t bytes, std::byte poison) {
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

  std::map<std::byte*, std::vector<std::byte>> blocks_ = {};
  std::vector<std::unique_ptr<std::byte[]>> sources_ = {};
  std::mutex lock_ = {};
};

}  // namespace wreload::test
