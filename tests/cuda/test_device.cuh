#pragma once
/// `test_device<cuda_executor>` and how densely operations fail on a device. See tests/update/injecting_executor.hpp.

#include <map>

#include "../cuda_memory.cuh"
#include "../update/injection_suite.hpp"

namespace wreload::test {

template <>
struct test_device<cuda_executor> {
  static int count() {
    int devices = 0;
    WRELOAD_TEST_CUDA(cudaGetDeviceCount(&devices));
    return devices;
  }
  static void select(int device) { WRELOAD_TEST_CUDA(cudaSetDevice(device)); }
  static void synchronize() { WRELOAD_TEST_CUDA(cudaDeviceSynchronize()); }
  static cuda_options options(int rank) { return {.device = rank % count(), .window_bytes = 1 << 20, .plan_bytes = 1 << 20}; }
  static event_ref event() {
    static thread_local std::map<int, cudaEvent_t> events;  // live as long as the process
    int device = 0;
    WRELOAD_TEST_CUDA(cudaGetDevice(&device));
    cudaEvent_t& made = events[device];
    if (made == nullptr) WRELOAD_TEST_CUDA(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    return {made};
  }
  static memory_kind readable(memory_kind kind) { return kind; }
};

template <>
inline constexpr std::int64_t injection_stride<cuda_executor> = 11;

}  // namespace wreload::test
