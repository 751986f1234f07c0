#pragma once
/// `cuda_maps`: the storage maps that jobs refer to, as the host and as kernels read them.

#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "../core/job.hpp"
#include "../core/storage_map.hpp"
#include "cuda_call.cuh"
#include "cuda_memory.cuh"

namespace wreload::detail {

class cuda_maps {
 public:
  /// Enqueues a copy on the stream.
  status reserve(std::span<const storage_map> maps, cudaStream_t stream) {
    if (status failed = memory_.allocate(static_cast<std::int64_t>(maps.size_bytes())); !failed.ok()) return failed;
    maps_.assign(maps.begin(), maps.end());
    return maps_.empty() ? status{} : copy_async(memory_.data(), maps_.data(), maps.size_bytes(), stream);
  }
  std::int64_t bytes() const { return memory_.bytes(); }

  /// Null for `unmapped`.
  const storage_map* host(map_index map) const {
    return map == unmapped ? nullptr : &maps_[static_cast<std::size_t>(map)];
  }
  const storage_map* device(map_index map) const {
    return map == unmapped ? nullptr : reinterpret_cast<const storage_map*>(memory_.data()) + map;
  }

 private:
  std::vector<storage_map> maps_ = {};
  cuda_memory memory_{cuda_memory::kind::device};
};

}  // namespace wreload::detail
