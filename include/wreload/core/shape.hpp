#pragma once
/// The extents of a tensor, and its canonical matrix form: dim 0 is the rows, the product of the others the columns.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace wreload {

/// Most dims that a tensor may have (vision patch embeddings have five).
inline constexpr int max_rank = 8;

constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

/// Multiplies two non-negative extents; false where the product does not fit.
[[nodiscard]] constexpr bool checked_multiply(std::int64_t a, std::int64_t b, std::int64_t& product) {
  return !__builtin_mul_overflow(a, b, &product);
}

/// Extents of a tensor of rank 0 (a scalar) to `max_rank`, in elements.
class shape {
 public:
  constexpr shape() = default;
  constexpr shape(std::initializer_list<std::int64_t> dims) : shape(std::span(dims.begin(), dims.size())) {}
  /// Takes the first `max_rank` dims; callers that read untrusted ranks check them before.
  constexpr explicit shape(std::span<const std::int64_t> dims) {
    for (const std::int64_t dim : dims) push_back(dim);
  }

  constexpr int rank() const { return rank_; }
  constexpr std::int64_t operator[](int dim) const { return dims_[static_cast<std::size_t>(dim)]; }
  constexpr std::int64_t& operator[](int dim) { return dims_[static_cast<std::size_t>(dim)]; }
  constexpr void push_back(std::int64_t dim) {
    if (rank_ < max_rank) dims_[static_cast<std::size_t>(rank_++)] = dim;
  }
  constexpr std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }

  /// Elements; a scalar has one. The caller has checked that the product fits (see `valid`).
  constexpr std::int64_t elements() const { return rows() * cols(); }
  constexpr std::int64_t rows() const { return rank_ == 0 ? 1 : dims_[0]; }
  constexpr std::int64_t cols() const {
    std::int64_t product = 1;
    for (int dim = 1; dim < rank_; ++dim) product *= (*this)[dim];
    return product;
  }

  /// No negative extent, and neither the element count nor 8 bytes an element overflows, whatever dim is zero.
  constexpr bool valid() const {
    std::int64_t product = 8;
    for (const std::int64_t dim : dims()) {
      if (dim < 0) return false;
      if (dim > 0 && !checked_multiply(product, dim, product)) return false;
    }
    return true;
  }

  friend constexpr bool operator==(const shape& a, const shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int dim = 0; dim < a.rank_; ++dim)
      if (a[dim] != b[dim]) return false;
    return true;
  }

 private:
  int rank_ = 0;  // first: with few dims all that matters is in one cache line
  std::array<std::int64_t, max_rank> dims_ = {};
};

/// `[4096, 14336]`; a scalar is `[]`.
inline std::string to_string(const shape& extents) {
  std::string text = "[";
  for (int dim = 0; dim < extents.rank(); ++dim) {
    if (dim > 0) text += ", ";
    text += std::to_string(extents[dim]);
  }
  return text + "]";
}

}  // namespace wreload
