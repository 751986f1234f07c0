#pragma once
/// Cutting a list of tensors into buckets of a given size, as a trainer sends them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "../core/box.hpp"
#include "../core/status.hpp"
#include "../core/tensor_ref.hpp"

namespace wreload {

/// One tensor of a bucket, or a part of one.
struct bucket_piece {
  std::size_t tensor = 0;  ///< position in the list that was cut
  box part = {};           ///< in the tensor's own dims; `whole` where the tensor is not cut
  tensor_ref data = {};    ///< the elements of `part`; row-major, or strided where the tensor is
};

namespace detail {

/// Fills one bucket after the other and hands each to `visit`.
template <class Visit>
class bucket_packer {
 public:
  bucket_packer(std::int64_t bucket_bytes, Visit& visit) : bucket_bytes_(bucket_bytes), visit_(visit) {}

  status add(std::size_t index, const tensor_ref& tensor) {
    const std::int64_t bytes = tensor.bytes();
    if (bucket_bytes_ == 0 || bytes <= bucket_bytes_ || tensor.extents.elements() == 1)
      return push({index, {}, tensor}, bytes);
    shape first = tensor.extents;
    for (int dim = 0; dim < first.rank(); ++dim) first[dim] = 0;
    return cut(index, tensor, {first, tensor.extents}, 0, bytes);
  }

  status flush() {
    status result;
    if (!pieces_.empty()) {
      if constexpr (std::is_void_v<std::invoke_result_t<Visit&, std::span<const bucket_piece>>>)
        visit_(std::span<const bucket_piece>(pieces_));
      else
        result = visit_(std::span<const bucket_piece>(pieces_));
    }
    pieces_.clear();
    used_ = 0;
    return result;
  }

 private:
  /// Cuts a part that is one index wide in the dims before `dim` and whole from there on, and larger than a bucket.
  status cut(std::size_t index, const tensor_ref& tensor, box part, int dim, std::int64_t bytes) {
    if (dim == tensor.extents.rank()) return push(piece(index, tensor, part), bytes);  // one element
    const std::int64_t count = tensor.extents[dim];
    const std::int64_t step_bytes = bytes / count;
    const std::int64_t steps = step_bytes > bucket_bytes_ ? 1 : bucket_bytes_ / step_bytes;
    for (std::int64_t at = 0; at < count; at += steps) {
      part.offset[dim] = at;
      part.extent[dim] = steps < count - at ? steps : count - at;
      const std::int64_t part_bytes = part.extent[dim] * step_bytes;
      status result = part_bytes > bucket_bytes_ ? cut(index, tensor, part, dim + 1, part_bytes)
                                                 : push(piece(index, tensor, part), part_bytes);
      if (!result.ok()) return result;
    }
    return {};
  }

  static bucket_piece piece(std::size_t index, const tensor_ref& tensor, const box& part) {
    std::int64_t offset_elements = 0;
    std::int64_t row_major_stride = 1;
    for (int dim = tensor.extents.rank() - 1; dim >= 0; --dim) {
      offset_elements += part.offset[dim] * (tensor.row_major() ? row_major_stride : tensor.strides[dim]);
      row_major_stride *= tensor.extents[dim];
    }
    tensor_ref data = tensor;
    data.data = static_cast<const std::byte*>(tensor.data) + offset_elements * bytes_of(tensor.type);
    data.extents = part.extent;
    return {index, part, data};
  }

  status push(const bucket_piece& next, std::int64_t bytes) {
    status result;
    if (!pieces_.empty() && (bucket_bytes_ == 0 || bytes > bucket_bytes_ - used_)) result = flush();
    if (!result.ok()) return result;
    pieces_.push_back(next);
    used_ += bytes;
    return result;
  }

  std::int64_t bucket_bytes_;
  Visit& visit_;
  std::vector<bucket_piece> pieces_;
  std::int64_t used_ = 0;
};

}  // namespace detail

/// Calls `visit(std::span<const bucket_piece>)` for each bucket; the pieces of all buckets are every tensor exactly
/// once, in the order given.
///
///   tensors       any memory, any strides; their data is not read
///   bucket_bytes  most bytes in a bucket; 0: no limit, and then every tensor comes whole, in a bucket of its own
///   visit         returns `status`, or nothing; the span is valid during the call
///
/// A tensor that fits in a bucket is never cut. A larger one is cut between rows, into as many whole rows as fit;
/// where one row is larger than a bucket, along the first inner dim that makes a piece fit; where one element is, that
/// element is a bucket. A tensor without elements is one whole piece of zero bytes.
///
/// Requires: every shape is `valid()`.
/// Errors:   bad_argument for a negative size; else the first refusal of `visit`, which ends the walk.
/// Cost:     memory for the pieces of one bucket.
template <class Visit>
[[nodiscard]] status for_each_bucket(std::span<const tensor_ref> tensors, std::int64_t bucket_bytes, Visit&& visit) {
  if (bucket_bytes < 0)
    return refuse(error_code::bad_argument, "bucket", "bytes >= 0", std::to_string(bucket_bytes));
  detail::bucket_packer<std::remove_reference_t<Visit>> packer(bucket_bytes, visit);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (status result = packer.add(i, tensors[i]); !result.ok()) return result;
  return packer.flush();
}

}  // namespace wreload
