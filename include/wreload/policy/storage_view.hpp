#pragma once
/// `StorageView`: how checkpoint elements lie in a param's own bytes.

#include "../core/dtype.hpp"
#include "policy.hpp"

namespace wreload {

/// The dtype that kernels read, where it is not the stored one.
template <dtype_tag Runtime>
struct Over {
  static constexpr dtype runtime = Runtime::id;
};

/// Axis: storage. The param is a matrix (rows, cols) of `Stored` elements.
template <dtype_tag Stored, class Storage = Over<Stored>>
struct StorageView;

/// `Stored` elements land in storage that kernels read as `Runtime`.
///
///   storage [rows, cols] Runtime, row stride cols * bytes(Runtime) (or more)
///   view    [rows, cols] Stored, same base and row stride: row i of the view is the first cols * bytes(Stored) bytes
///           of row i of the storage
///
/// Where the two dtypes differ the rows that arrived as Stored are converted in place at `finish`; rows that arrived
/// as Runtime stay as they are. No second copy, and any row range is the same range in both views.
///
///     using view = StorageView<fp8_e4m3, Over<bf16>>;
///     static_assert(view::converts && view::stored == dtype::fp8_e4m3 && view::runtime == dtype::bf16);
template <dtype_tag Stored, dtype_tag Runtime>
struct StorageView<Stored, Over<Runtime>> {
  using axis = wreload::axis::storage;
  static constexpr dtype stored = Stored::id;
  static constexpr dtype runtime = Runtime::id;
  static constexpr bool converts = stored != runtime;
  static constexpr bool is_block_scale = false;
  static constexpr int block_rows = 0;
  static constexpr int block_cols = 0;

  static_assert(bytes_of(stored) <= bytes_of(runtime),
                "StorageView: the stored dtype is wider than its storage; widen Over<...> or store a narrower dtype");
  static_assert(!converts || stored == dtype::fp8_e4m3 || stored == dtype::fp8_e5m2,
                "StorageView: only fp8_e4m3 and fp8_e5m2 are converted in place; use Accepts<...> to widen at landing");
  static_assert(!converts || runtime == dtype::bf16 || runtime == dtype::fp16 || runtime == dtype::fp32,
                "StorageView: FP8 converts to bf16, fp16 or fp32; name one of them in Over<...>");
};

}  // namespace wreload
