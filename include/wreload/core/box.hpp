#pragma once
/// Parts of tensors: `box` in the tensor's own dims (what callers say), `rect` in its matrix form (what the library
/// keeps).

#include <algorithm>
#include <cstdint>
#include <string>

#include "shape.hpp"

namespace wreload {

/// Half-open rectangle of a matrix, in elements: rows [row_begin, row_end) x columns [col_begin, col_end).
struct rect {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t col_begin = 0;
  std::int64_t col_end = 0;

  constexpr std::int64_t rows() const { return row_end - row_begin; }
  constexpr std::int64_t cols() const { return col_end - col_begin; }
  constexpr std::int64_t elements() const { return empty() ? 0 : rows() * cols(); }
  constexpr bool empty() const { return row_begin >= row_end || col_begin >= col_end; }
  constexpr bool contains(const rect& other) const {
    return other.empty() || (row_begin <= other.row_begin && other.row_end <= row_end &&
                             col_begin <= other.col_begin && other.col_end <= col_end);
  }
  friend constexpr bool operator==(const rect&, const rect&) = default;
};

/// The common part; possibly empty.
constexpr rect intersect(const rect& a, const rect& b) {
  return {std::max(a.row_begin, b.row_begin), std::min(a.row_end, b.row_end), std::max(a.col_begin, b.col_begin),
          std::min(a.col_end, b.col_end)};
}

/// `rows 128..256, cols 0..64`
inline std::string to_string(const rect& part) {
  return "rows " + std::to_string(part.row_begin) + ".." + std::to_string(part.row_end) + ", cols " +
         std::to_string(part.col_begin) + ".." + std::to_string(part.col_end);
}

/// Part of a tensor in its own dims: `offset` and `extent` have the tensor's rank. Default-constructed: the whole.
struct box {
  shape offset = {};
  shape extent = {};
  bool whole = true;

  constexpr box() = default;
  constexpr box(const shape& first, const shape& size) : offset(first), extent(size), whole(false) {}

  /// Rows [begin, end) of a tensor of the given shape.
  static constexpr box rows(const shape& of, std::int64_t begin, std::int64_t end) { return along(0, of, begin, end); }
  /// Slice [begin, end) of one dim, the other dims whole.
  static constexpr box along(int dim, const shape& of, std::int64_t begin, std::int64_t end) {
    shape first = of;
    for (int i = 0; i < of.rank(); ++i) first[i] = 0;
    shape size = of;
    first[dim] = begin;
    size[dim] = end - begin;
    return {first, size};
  }
};

/// The default of `load`, made once: a box is long.
inline constexpr box whole_tensor = {};

/// `[128, 0] + [64, 7168]`
inline std::string to_string(const box& part) {
  return part.whole ? "whole" : to_string(part.offset) + " + " + to_string(part.extent);
}

/// Whether the box lies inside a tensor of this shape (same rank, no negative or overflowing side).
constexpr bool fits(const box& part, const shape& tensor) {
  if (part.whole) return true;
  if (part.offset.rank() != tensor.rank() || part.extent.rank() != tensor.rank()) return false;
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    if (part.offset[dim] < 0 || part.extent[dim] < 0) return false;
    if (part.offset[dim] > tensor[dim] || part.extent[dim] > tensor[dim] - part.offset[dim]) return false;
  }
  return true;
}

/// Calls `visit(rect, index)` for the rectangles of a box in the tensor's matrix form. `index` is the position, inside
/// the box, of the rectangle's first element. One rectangle covers the inner dims from `run_begin` on (at least the
/// last), or from the innermost dim that the box cuts if that lies further in; outer dims are stepped through.
///
/// Requires: `fits(part, tensor)`, 1 <= run_begin.
template <class Visit>
constexpr void for_each_rect(const box& part, const shape& tensor, int run_begin, Visit&& visit) {
  shape index = tensor;
  for (int dim = 0; dim < tensor.rank(); ++dim) index[dim] = 0;
  const shape size = part.whole ? tensor : part.extent;
  const shape begin = part.whole ? index : part.offset;
  if (size.elements() == 0) return;
  const std::int64_t row = tensor.rank() == 0 ? 0 : begin[0];
  if (tensor.rank() <= 1) {
    visit(rect{row, row + size.rows(), 0, 1}, index);
    return;
  }
  int cut = tensor.rank() - 1;  // one rectangle covers dims cut .. rank - 1
  std::int64_t inner = 1;       // elements per step of dim `cut`
  for (; cut > run_begin && size[cut] == tensor[cut]; --cut) inner *= tensor[cut];
  for (;;) {
    std::int64_t col = 0;
    for (int dim = 1; dim <= cut; ++dim) col = col * tensor[dim] + begin[dim] + index[dim];
    visit(rect{row, row + size[0], col * inner, (col + size[cut]) * inner}, index);
    int dim = cut - 1;
    while (dim >= 1 && ++index[dim] == size[dim]) index[dim--] = 0;
    if (dim < 1) return;
  }
}

}  // namespace wreload
