#pragma once
// Memory for runtime tensors, per executor. An executor that is added brings its own specialisation.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "options.hpp"

namespace reload {

// Owns allocations for an engine's life. Fresh bytes hold `fill`: two engines with different fills show a byte that
// nobody wrote as a difference.
template <class Executor>
class device_memory;

template <>
class device_memory<wr::host_executor> {
 public:
  static constexpr std::size_t alignment = 256;

  explicit device_memory(std::byte fill) : fill_(fill) {}

  // Null for zero bytes.
  wr::status allocate(std::int64_t bytes, std::byte** data) {
    *data = nullptr;
    if (bytes == 0) return {};
    const std::size_t rounded = (static_cast<std::size_t>(bytes) + alignment - 1) / alignment * alignment;
    block owned(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (owned == nullptr)
      return wr::refuse(wr::error_code::out_of_memory, {}, std::to_string(bytes) + " bytes of host memory", "none");
    *data = owned.get();
    blocks_.push_back(std::move(owned));
    return fill(*data, bytes);
  }

  // Fresh bytes that were taken elsewhere.
  wr::status fill(std::byte* data, std::int64_t bytes) const {
    std::memset(data, std::to_integer<int>(fill_), static_cast<std::size_t>(bytes));
    return {};
  }

 private:
  struct release {
    void operator()(std::byte* data) const { std::free(data); }
  };
  using block = std::unique_ptr<std::byte, release>;

  std::byte fill_;
  std::vector<block> blocks_ = {};
};

template <class Executor>
concept has_device_memory = requires(device_memory<Executor> memory, std::byte* data) {
  device_memory<Executor>(std::byte{});
  { memory.allocate(std::int64_t{}, &data) } -> std::same_as<wr::status>;
  { memory.fill(data, std::int64_t{}) } -> std::same_as<wr::status>;
};
static_assert(has_device_memory<wr::host_executor>);

}  // namespace reload
