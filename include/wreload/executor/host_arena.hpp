#pragma once
/// `host_arena`: an arena on plain memory. It has no pages to map: an exchange swaps the contents, which takes as long as
/// copying them.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "arena.hpp"

namespace wreload {

class host_arena {
 public:
  host_arena() = default;
  host_arena(const host_arena&) = delete;             // models point to it
  host_arena& operator=(const host_arena&) = delete;
  ~host_arena() {
    std::free(live_.data());
    std::free(spare_);
  }

  status open(const arena_options& options) {
    if (live_.data() != nullptr) return refuse(error_code::wrong_state, "arena", "a new one", "an open one");
    if (options.bytes <= 0 || options.piece_bytes <= 0) return detail::bad_arena(options);
    const std::int64_t bytes = (options.bytes + page - 1) / page * page;
    std::byte* live = allocate(bytes);
    if (options.spare) spare_ = allocate(bytes);
    if (live == nullptr || (options.spare && spare_ == nullptr)) {
      std::free(live);
      std::free(spare_);
      spare_ = nullptr;
      return refuse(error_code::out_of_memory, "arena", std::to_string(options.bytes) + " bytes a generation", "less");
    }
    live_.use(live, bytes);
    resident_ = true;
    return {};
  }

  std::byte* take(std::int64_t bytes, std::int64_t alignment = 256) { return live_.take(bytes, alignment); }
  std::byte* data() const { return live_.data(); }
  std::int64_t bytes() const { return live_.bytes(); }
  std::byte* spare() const { return spare_; }

  status open_spare() { return {}; }
  status exchange(bool*) {
    std::byte swapped[page];
    for (std::int64_t at = 0; at < bytes(); at += page) {
      std::memcpy(swapped, data() + at, page);
      std::memcpy(data() + at, spare_ + at, page);
      std::memcpy(spare_ + at, swapped, page);
    }
    return {};
  }

  /// The contents are lost, as those of pages would be.
  status drop() {
    forget();
    resident_ = false;
    return {};
  }
  status restore() {
    forget();
    resident_ = true;
    return {};
  }

  bool is_resident() const { return resident_; }
  std::int64_t allocated_bytes() const { return resident_ ? bytes() * (spare_ == nullptr ? 1 : 2) : 0; }

 private:
  static constexpr std::int64_t page = 4096;

  static std::byte* allocate(std::int64_t bytes) {
    return static_cast<std::byte*>(std::aligned_alloc(page, static_cast<std::size_t>(bytes)));
  }
  void forget() {
    for (std::byte* each : {data(), spare_})
      if (each != nullptr) std::memset(each, 0xDB, static_cast<std::size_t>(bytes()));
  }

  detail::bump_pointer live_ = {};
  std::byte* spare_ = nullptr;
  bool resident_ = false;
};

static_assert(arena<host_arena>);

}  // namespace wreload
