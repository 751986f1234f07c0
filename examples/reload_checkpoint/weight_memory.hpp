#pragma once
// Where an engine's weights lie: each tensor in an allocation of its own, or all in one arena with spare pages.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "device_memory.hpp"

namespace reload {

template <wr::executor Executor>
requires has_device_memory<Executor>
class weight_memory {
 public:
  using arena_type = typename Executor::arena;

  static constexpr std::int64_t alignment = 256;
  static constexpr std::int64_t rounded(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

  explicit weight_memory(std::byte fill) : memory_(fill) {}

  // Takes the pages of two generations for tensors of `bytes` (each `rounded`), both filled. Before any `allocate`.
  wr::status use_arena(std::int64_t bytes) {
    arena_type& pages = arena_.emplace();
    if (wr::status failed = pages.open({.bytes = std::max(bytes, alignment), .spare = true}); !failed.ok())
      return failed;
    for (std::byte* generation : {pages.data(), pages.spare()})
      if (wr::status failed = memory_.fill(generation, pages.bytes()); !failed.ok()) return failed;
    return {};
  }

  // Null for zero bytes.
  wr::status allocate(std::int64_t bytes, std::byte** data) {
    if (!arena_) return memory_.allocate(bytes, data);
    *data = nullptr;
    if (bytes == 0) return {};
    *data = arena_->take(bytes, alignment);
    if (*data != nullptr) return {};
    return wr::refuse(wr::error_code::out_of_memory, {}, std::to_string(bytes) + " bytes of the arena", "none");
  }

  // Null without.
  arena_type* arena() { return arena_ ? &*arena_ : nullptr; }
  std::int64_t spare_bytes() const { return arena_ ? arena_->bytes() : 0; }

 private:
  device_memory<Executor> memory_;
  std::optional<arena_type> arena_ = {};
};

}  // namespace reload
