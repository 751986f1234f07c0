#pragma once
/// `cuda_arena`: an arena on CUDA's virtual memory management.

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "cuda_call.cuh"

namespace wreload {

namespace detail {

/// The driver's calls, looked up through the runtime: nothing has to be linked against libcuda.
struct virtual_memory {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) unreserve = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;

  status load() {
    status failed;
    const auto find = [&failed](const char* name, auto& call) {
      if (!failed.ok()) return;
      void* found = nullptr;
      cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
      const cudaError_t error =
          cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
      failed = cuda_status(error, name);
      if (failed.ok() && (result != cudaDriverEntryPointSuccess || found == nullptr))
        failed = refuse(error_code::execution_failed, name, "a driver that has it", "another");
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(found);
    };
    find("cuMemGetAllocationGranularity", granularity);
    find("cuMemAddressReserve", reserve);
    find("cuMemAddressFree", unreserve);
    find("cuMemCreate", create);
    find("cuMemRelease", release);
    find("cuMemMap", map);
    find("cuMemUnmap", unmap);
    find("cuMemSetAccess", set_access);
    find("cuGetErrorName", error_name);
    return failed;
  }

  status check(CUresult result, std::string_view call) const {
    if (result == CUDA_SUCCESS) return {};
    const char* text = nullptr;
    (void)error_name(result, &text);
    return refuse(result == CUDA_ERROR_OUT_OF_MEMORY ? error_code::out_of_memory : error_code::execution_failed, call, {},
                  text == nullptr ? "an unknown error" : text);
  }
};

}  // namespace detail

/// Weights at addresses that are reserved once, on pages that are exchanged under them. Captured graphs stay valid: they
/// hold addresses.
///
/// What names *pages* does not: after an exchange, a drop or a restore, RDMA registrations, IPC exports and NCCL user
/// buffers of either range still mean the old pages (or none) and must be made anew.
///
/// Stream:    calls are host calls; the device must be idle where the concept `arena` says so
/// Device:    every call restores the calling thread's current device
/// Errors:    CUDA's are `execution_failed` (or `out_of_memory`) with the name of the call
/// Source:    CUDA driver API, "Virtual Memory Management"
class cuda_arena {
 public:
  cuda_arena() = default;
  cuda_arena(const cuda_arena&) = delete;             // models point to it
  cuda_arena& operator=(const cuda_arena&) = delete;
  ~cuda_arena() {
    if (live_.data() == nullptr) return;
    const detail::device_guard guard(device_);
    (void)drop();
    for (std::byte* each : {live_.data(), spare_})
      if (each != nullptr) (void)calls_.unreserve(address(each), static_cast<std::size_t>(bytes()));
  }

  status open(const arena_options& options) {
    if (live_.data() != nullptr) return refuse(error_code::wrong_state, "arena", "a new one", "an open one");
    if (options.bytes <= 0 || options.piece_bytes <= 0) return detail::bad_arena(options);
    device_ = options.device;
    if (device_ < 0)
      if (status failed = detail::cuda_status(cudaGetDevice(&device_), "cudaGetDevice"); !failed.ok()) return failed;
    const detail::device_guard guard(device_);
    if (status failed = detail::cuda_status(cudaFree(nullptr), "cudaFree"); !failed.ok()) return failed;  // a context
    if (status failed = calls_.load(); !failed.ok()) return failed;
    const CUmemAllocationProp kind = pages();
    std::size_t smallest = 0;
    if (status failed = calls_.check(calls_.granularity(&smallest, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                                     "cuMemGetAllocationGranularity");
        !failed.ok())
      return failed;
    const auto unit = static_cast<std::int64_t>(smallest);
    const std::int64_t size = (options.bytes + unit - 1) / unit * unit;
    piece_bytes_ = std::min((options.piece_bytes + unit - 1) / unit * unit, size);
    std::byte* live = nullptr;
    status failed = reserve(size, unit, &live);
    if (failed.ok() && options.spare) failed = reserve(size, unit, &spare_);
    if (failed.ok()) {
      live_.use(live, size);
      failed = restore();
    }
    if (failed.ok()) return {};
    for (std::byte** each : {&live, &spare_})
      if (*each != nullptr) (void)calls_.unreserve(address(*each), static_cast<std::size_t>(size));
    spare_ = nullptr;
    live_.use(nullptr, 0);
    return failed;
  }

  std::byte* take(std::int64_t bytes, std::int64_t alignment = 256) { return live_.take(bytes, alignment); }
  std::byte* data() const { return live_.data(); }
  std::int64_t bytes() const { return live_.bytes(); }
  std::byte* spare() const { return spare_; }

  /// Not part of the exchange, whose time an engine waits for: pages can be mapped at both addresses.
  status open_spare() {
    const detail::device_guard guard(device_);
    if (!is_spare_stale_) return {};
    unmap(spare_);
    if (status failed = map(spare_, spare_pages_); !failed.ok()) return failed;
    is_spare_stale_ = false;
    return {};
  }

  status exchange(bool* torn) {
    const detail::device_guard guard(device_);
    const auto size = static_cast<std::size_t>(bytes());
    if (status failed = calls_.check(calls_.unmap(address(data()), size), "cuMemUnmap"); !failed.ok()) return failed;
    if (status failed = map(data(), spare_pages_); !failed.ok()) {  // back, from whatever has been reached
      unmap(data());
      *torn = !map(data(), live_pages_).ok();
      return failed;
    }
    std::swap(live_pages_, spare_pages_);
    is_spare_stale_ = !is_spare_stale_;
    return {};
  }

  status drop() {
    const detail::device_guard guard(device_);
    for (std::byte* each : {data(), spare_})
      if (each != nullptr) unmap(each);
    for (std::vector<CUmemGenericAllocationHandle>* set : {&live_pages_, &spare_pages_}) {
      for (const CUmemGenericAllocationHandle piece : *set) (void)calls_.release(piece);
      set->clear();
    }
    return {};
  }

  status restore() {
    const detail::device_guard guard(device_);
    is_spare_stale_ = false;
    status failed = take_pages(data(), live_pages_);
    if (failed.ok() && spare_ != nullptr) failed = take_pages(spare_, spare_pages_);
    if (!failed.ok()) (void)drop();
    return failed;
  }

  bool is_resident() const { return !live_pages_.empty(); }
  std::int64_t allocated_bytes() const {
    return static_cast<std::int64_t>(live_pages_.empty() ? 0 : bytes()) +
           static_cast<std::int64_t>(spare_pages_.empty() ? 0 : bytes());
  }

 private:
  using page_list = std::vector<CUmemGenericAllocationHandle>;

  static CUdeviceptr address(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }

  CUmemAllocationProp pages() const {
    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    kind.location.id = device_;
    return kind;
  }

  status reserve(std::int64_t size, std::int64_t alignment, std::byte** made) const {
    CUdeviceptr first = 0;
    const CUresult result =
        calls_.reserve(&first, static_cast<std::size_t>(size), static_cast<std::size_t>(alignment), 0, 0);
    *made = reinterpret_cast<std::byte*>(first);
    return calls_.check(result, "cuMemAddressReserve");
  }

  std::int64_t piece_size(std::int64_t begin) const { return std::min(piece_bytes_, bytes() - begin); }

  status take_pages(std::byte* at, page_list& set) const {
    const CUmemAllocationProp kind = pages();
    for (std::int64_t begin = 0; begin < bytes(); begin += piece_bytes_) {
      CUmemGenericAllocationHandle piece = 0;
      const CUresult result = calls_.create(&piece, static_cast<std::size_t>(piece_size(begin)), &kind, 0);
      if (status failed = calls_.check(result, "cuMemCreate"); !failed.ok()) return failed;
      set.push_back(piece);
    }
    return map(at, set);
  }

  status map(std::byte* at, const page_list& set) const {
    std::int64_t begin = 0;
    for (const CUmemGenericAllocationHandle piece : set) {
      const auto size = static_cast<std::size_t>(piece_size(begin));
      if (status failed = calls_.check(calls_.map(address(at + begin), size, 0, piece, 0), "cuMemMap"); !failed.ok())
        return failed;
      begin += piece_bytes_;
    }
    CUmemAccessDesc access = {};
    access.location = pages().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return calls_.check(calls_.set_access(address(at), static_cast<std::size_t>(bytes()), &access, 1), "cuMemSetAccess");
  }

  /// Piece by piece, since there may be gaps; a piece that is not mapped is passed over.
  void unmap(std::byte* at) const {
    for (std::int64_t begin = 0; begin < bytes(); begin += piece_bytes_)
      (void)calls_.unmap(address(at + begin), static_cast<std::size_t>(piece_size(begin)));
  }

  int device_ = 0;
  detail::virtual_memory calls_ = {};
  detail::bump_pointer live_ = {};
  std::byte* spare_ = nullptr;
  std::int64_t piece_bytes_ = 0;
  page_list live_pages_ = {};
  page_list spare_pages_ = {};
  bool is_spare_stale_ = false;  ///< the pages of live are mapped at the spare addresses too
};

static_assert(arena<cuda_arena>);

}  // namespace wreload
