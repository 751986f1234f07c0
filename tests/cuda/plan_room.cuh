#pragma once
/// `cuda_planning`: a CUDA executor with room for plans. See tests/update/bucket_delivery.hpp.

#include "../cuda_memory.cuh"
#include "../update/bucket_delivery.hpp"

namespace wreload::test {

template <>
struct plan_room<cuda_executor> {
  static std::tuple<cuda_options> options() { return {cuda_options{.window_bytes = 1 << 20, .plan_bytes = 4 << 20}}; }
};
using cuda_planning = planning_executor<cuda_executor>;

}  // namespace wreload::test
