#pragma once
/// A tensor that somebody else owns: what `load` reads.

#include <cstddef>
#include <cstdint>

#include "dtype.hpp"
#include "shape.hpp"

namespace wreload {

/// Where bytes live. `pinned` and `pageable` are host memory; `device` is memory of a GPU.
enum class memory_kind : std::uint8_t { pageable, pinned, device };

/// An opaque CUDA stream or event; null on the host executor.
struct stream_ref {
  void* handle = nullptr;
  friend constexpr bool operator==(stream_ref, stream_ref) = default;
};
struct event_ref {
  void* handle = nullptr;
};

/// Non-owning view of a tensor.
///
///   data     first element; any alignment; may be null when there are no elements
///   extents  elements per dim
///   strides  *elements* per step of each dim; rank 0: the usual row-major order
///   memory   where data lives
struct tensor_ref {
  const void* data = nullptr;
  dtype type = dtype::none;
  shape extents = {};
  shape strides = {};
  memory_kind memory = memory_kind::pageable;

  constexpr bool row_major() const { return strides.rank() == 0; }
  constexpr std::int64_t bytes() const { return extents.elements() * bytes_of(type); }
};

/// `F8_E4M3 [4096, 7168]`
inline std::string to_string(const tensor_ref& tensor) {
  return std::string(name_of(tensor.type)) + " " + to_string(tensor.extents);
}

}  // namespace wreload
