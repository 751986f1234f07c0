#pragma once
/// `audit_result` and what an audit compares with.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../core/box.hpp"

namespace wreload {

/// A tensor that is not what it should be.
struct mismatch {
  std::string name = {};
  std::int64_t row = 0;  ///< first differing element, in the param's matrix form; against a digest list: the first
  std::int64_t col = 0;  ///< element of the differing tile, in checkpoint coordinates
};

/// The three figures of an audit, and their names.
struct audit_result {
  std::int64_t compared = 0;
  std::int64_t retired = 0;        ///< registered, but outside the comparison
  std::int64_t not_comparable = 0; ///< no counterpart, or (digests) tiles that the other side does not cover equally
  std::vector<mismatch> mismatched = {};
  std::vector<std::string> moved = {};
  std::int64_t memory_growth = 0;  ///< bytes of device and pinned memory since `seal`

  bool clean() const { return mismatched.empty() && moved.empty() && memory_growth == 0 && not_comparable == 0; }
};

/// A host copy of every tensor that kernels read, for later audits.
struct model_snapshot {
  struct tensor {
    std::string name = {};
    std::vector<std::byte> bytes = {};  ///< dense rows
  };
  std::vector<tensor> tensors = {};
};

}  // namespace wreload
