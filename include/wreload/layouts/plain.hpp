#pragma once
/// `Plain`: one tensor that runs as it is stored.

#include "../layout/param_layout.hpp"

namespace wreload {

/// One unnamed param whose dtype and shape come with the extents; the layer's name is the tensor's name. Shards fuse
/// along dim 0; `extents::accepts` lists dtypes that are widened while landing (BF16 -> FP32).
struct Plain {
  static constexpr std::array<param_spec, 1> specs = {param_spec{}};
};
static_assert(param_layout<Plain>);

}  // namespace wreload
