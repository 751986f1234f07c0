#pragma once
/// `index_list`: a short list of record indices.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace wreload {

/// Grows at its end; one or two entries need no heap.
class index_list {
 public:
  index_list() = default;
  index_list(const index_list& other) {
    for (const std::int32_t entry : other) push_back(entry);
  }
  index_list(index_list&& other) noexcept { swap(other); }
  index_list& operator=(index_list other) noexcept {
    swap(other);
    return *this;
  }
  ~index_list() {
    if (capacity_ > few_) delete[] body_.many;
  }

  void push_back(std::int32_t entry) {
    if (size_ == capacity_) {
      auto* grown = new std::int32_t[2 * capacity_];
      std::copy(begin(), end(), grown);
      if (capacity_ > few_) delete[] body_.many;
      body_.many = grown;
      capacity_ *= 2;
    }
    (capacity_ > few_ ? body_.many : body_.few)[size_++] = entry;
  }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  std::int32_t operator[](std::size_t i) const { return begin()[i]; }
  const std::int32_t* begin() const { return capacity_ > few_ ? body_.many : body_.few; }
  const std::int32_t* end() const { return begin() + size_; }

 private:
  static constexpr std::uint32_t few_ = 2;

  void swap(index_list& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(body_, other.body_);
  }

  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = few_;
  union entries {
    std::int32_t few[few_];
    std::int32_t* many;
  };
  entries body_ = {};
};
static_assert(sizeof(index_list) == 16);

}  // namespace wreload
