#pragma once
/// CUDA calls as this library makes them: errors become a `status`, the caller's device and capture mode come back.

#include <cuda_runtime.h>

#include <cstddef>
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

/// Copies on a stream, whatever the two kinds of memory are.
inline status copy_async(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

/// Refuses while a stream is being captured.
inline status check_not_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  if (error == cudaErrorStreamCaptureImplicit || (error == cudaSuccess && capture != cudaStreamCaptureStatusNone)) {
    (void)cudaGetLastError();
    return refuse(error_code::wrong_state, {}, "streams that are not being captured", "one that is");
  }
  return cuda_status(error, "cudaStreamIsCapturing");
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
