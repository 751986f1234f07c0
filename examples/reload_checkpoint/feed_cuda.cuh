#pragma once
// Files to a GPU: through pinned memory, which kernels read. No device memory is taken for it.

#include <wreload/source/feed_cuda.cuh>

#include "feed.hpp"

namespace reload {

template <>
struct feed_for<wr::cuda_executor> {
  using type = wr::cuda_feed;
};

}  // namespace reload
