#pragma once
/// Pieces: a tensor that fills a box of a checkpoint tensor, as rectangles with addresses.

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/box.hpp"
#include "../core/status.hpp"
#include "../core/tensor_ref.hpp"

namespace wreload {

/// A rectangle of the target's matrix form, and where its elements come from.
struct piece_run {
  rect part = {};
  const std::byte* source = nullptr;
  std::int64_t row_stride_bytes = 0;
  std::int64_t col_stride_bytes = 0;
  memory_kind memory = memory_kind::pageable;

  /// Address of the element at (row, col) of the target's matrix form.
  const std::byte* at(std::int64_t row, std::int64_t col) const {
    return source + (row - part.row_begin) * row_stride_bytes + (col - part.col_begin) * col_stride_bytes;
  }
};

/// Refuses a tensor that does not fill a box of the target: by its shape, its strides or its null pointer. `name()` is
/// called for messages alone.
template <class Name>
status check_box(Name&& name, const shape& target, const tensor_ref& tensor, const box& part) {
  if (!fits(part, target))
    return refuse(error_code::wrong_shape, name(), "a box inside " + to_string(target), to_string(part));
  const shape& size = part.whole ? target : part.extent;
  const bool one_element = size.elements() == 1 && tensor.extents.valid() && tensor.extents.elements() == 1;
  if (!(tensor.extents == size) && !one_element)
    return refuse(error_code::wrong_shape, name(), std::string(name_of(tensor.type)) + " " + to_string(size),
                  to_string(tensor));
  if (!tensor.row_major() && tensor.strides.rank() != tensor.extents.rank())
    return refuse(error_code::bad_argument, name(), "a stride per dim", to_string(tensor.strides));
  if (tensor.data == nullptr && size.elements() > 0)
    return refuse(error_code::bad_argument, name(), to_string(tensor), "a null pointer");
  return {};
}

/// Calls `visit(piece_run)` for the rectangles of a piece. Any strides are read as they are, transposed views too.
///
/// Requires: `fits(part, target)`; the tensor has the box's extents, or both have one element.
template <class Visit>
void for_each_run(const tensor_ref& tensor, const box& part, const shape& target, Visit&& visit) {
  const std::int64_t element = bytes_of(tensor.type);
  if (part.whole && tensor.row_major()) {  // nearly always
    const std::int64_t rows = target.rows(), cols = target.cols();
    if (rows > 0 && cols > 0)
      visit(piece_run{{0, rows, 0, cols}, static_cast<const std::byte*>(tensor.data), cols * element, element,
                      tensor.memory});
    return;
  }
  const shape size = part.whole ? target : part.extent;
  const int rank = size.rank();
  shape stride = size;
  std::int64_t dense = 1;
  for (int dim = rank - 1; dim >= 0; dim--) {
    const bool as_given = !tensor.row_major() && tensor.strides.rank() == rank;
    stride[dim] = as_given ? tensor.strides[dim] : dense;
    dense *= size[dim];
  }
  // Inner dims that one stride steps through can be one run.
  int run_begin = rank > 1 ? rank - 1 : 1;
  while (run_begin > 1 && stride[run_begin - 1] == stride[run_begin] * size[run_begin]) --run_begin;
  for_each_rect(part, target, run_begin, [&](const rect& found, const shape& index) {
    const auto* first = static_cast<const std::byte*>(tensor.data);
    for (int dim = 1; dim < rank; ++dim) first += index[dim] * stride[dim] * element;
    visit(piece_run{found, first, rank > 0 ? stride[0] * element : element, rank > 1 ? stride[rank - 1] * element : element,
                    tensor.memory});
  });
}

/// The same for a tensor [experts, rows, cols] whose matrix form is [experts * rows, cols]: a run or more an expert.
template <class Visit>
void for_each_bundle_run(const tensor_ref& tensor, const box& part, const shape& target, Visit&& visit) {
  const shape size = part.whole ? target : part.extent;
  const shape first = part.whole ? shape{0, 0, 0} : part.offset;
  const bool strided = !tensor.row_major() && tensor.strides.rank() == 3;
  const std::int64_t stride = strided ? tensor.strides[0] : size[1] * size[2];
  tensor_ref one = tensor;
  one.extents = {size[1], size[2]};
  one.strides = strided ? shape{tensor.strides[1], tensor.strides[2]} : shape{};
  for (std::int64_t expert = 0; expert < size[0]; ++expert) {
    one.data = static_cast<const std::byte*>(tensor.data) + expert * stride * bytes_of(tensor.type);
    for_each_run(one, {{first[1], first[2]}, {size[1], size[2]}}, {target[1], target[2]}, [&](piece_run run) {
      run.part.row_begin += (first[0] + expert) * target[1];
      run.part.row_end += (first[0] + expert) * target[1];
      visit(run);
    });
  }
}

}  // namespace wreload
