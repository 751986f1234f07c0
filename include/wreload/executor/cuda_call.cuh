#pragma once
/// CUDA calls as this library makes them: errors become a `status`, the caller's device and capture mode come back.

#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "../core/status.hpp"

namespace wreload::detail {

/// `ok`, or an execution error that names the call: `cudaEventRecord: invalid resource handle`. Takes the error out of
/// the runtime's per-thread memory, so that the engine does not find it there.
inline status cuda_status(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return refuse(error == cudaErrorMemoryAllocation ? error_code::out_of_memory : error_code::execution_failed, call, {},
                cudaGetErrorString(error));
}

/// For the life of the object the calling thread uses `device`, and its calls neither break nor join a capture that
/// another thread has open. (Where the thread used a device without a context, going back creates one.)
class device_guard {
 public:
  explicit device_guard(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    if (before_ != device) (void)cudaSetDevice(device);
    changed_ = before_ != device;
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  device_guard(const device_guard&) = delete;             // restores on scope exit, once
  device_guard& operator=(const device_guard&) = delete;
  ~device_guard() {
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    if (changed_) (void)cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace wreload::detail
