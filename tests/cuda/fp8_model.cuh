#pragma once
/// One FP8 matrix over BF16 in a model of its own, with random codes and scales: what most stream tests need.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels.cuh"

namespace wreload::test {
namespace {

inline void demand_ok(const status& result) { REQUIRE_MESSAGE(result.ok(), result.message()); }

/// `w.weight` [rows, cols] and `w.weight_scale_inv`; sources of two seeds lie in device memory.
class fp8_model {
 public:
  fp8_model(std::int64_t rows, std::int64_t cols, const cuda_options& options = {})
      : rows_(rows), cols_(cols), blocks_((rows + 127) / 128 * ((cols + 127) / 128)), model_(options) {
    weight_ = memory_.allocate(rows * cols * 2, std::byte{0xA5});
    scale_ = memory_.allocate(blocks_ * 4, std::byte{0xA5});
    demand_ok(model_.add<Fp8DequantLinear>("w", extents::matrix("w", rows, cols), weight_, scale_));
    demand_ok(model_.seal());
    wrong_ = memory_.allocate(8, std::byte{0});
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      codes_[seed] = memory_.allocate(rows * cols, std::byte{0});
      scales_[seed] = memory_.allocate(blocks_ * 4, std::byte{0});
      write_sources(seed, nullptr);
    }
    WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
  }

  model<cuda_executor>& operator*() { return model_; }
  model<cuda_executor>* operator->() { return &model_; }
  test_memory<cuda_executor>& memory() { return memory_; }
  std::byte* weight() { return weight_; }
  std::int64_t weight_bytes() const { return rows_ * cols_ * 2; }
  std::int64_t source_bytes() const { return rows_ * cols_; }
  std::byte* codes(std::uint64_t seed) { return codes_[seed]; }
  std::byte* scales(std::uint64_t seed) { return scales_[seed]; }

  void write_sources(std::uint64_t seed, cudaStream_t stream) {
    fill_codes<<<1024, 256, 0, stream>>>(reinterpret_cast<std::uint8_t*>(codes_[seed]),
                                         static_cast<std::uint64_t>(rows_ * cols_), seed);
    fill_scales<<<64, 256, 0, stream>>>(reinterpret_cast<std::uint32_t*>(scales_[seed]),
                                        static_cast<std::uint64_t>(blocks_), seed);
    WRELOAD_TEST_CUDA(cudaGetLastError());
  }

  tensor_ref codes_ref(std::uint64_t seed) {
    return {.data = codes_[seed], .type = dtype::fp8_e4m3, .extents = {rows_, cols_}, .memory = memory_kind::device};
  }
  tensor_ref scales_ref(std::uint64_t seed) {
    return {.data = scales_[seed], .type = dtype::fp32, .extents = {(rows_ + 127) / 128, (cols_ + 127) / 128},
            .memory = memory_kind::device};
  }
  std::vector<piece> pieces(std::uint64_t seed) {
    return {{.name = "w.weight", .tensor = codes_ref(seed)},
            {.name = "w.weight_scale_inv", .tensor = scales_ref(seed)}};
  }

  update<cuda_executor> start(const start_options& options = {}) {
    status refused;
    update<cuda_executor> open = model_.start(options, &refused);
    demand_ok(refused);
    return open;
  }
  void reload(std::uint64_t seed, stream_ref stream = {}) {
    update<cuda_executor> open = start({.stream = stream});
    demand_ok(open.load(pieces(seed)));
    demand_ok(open.finish());
  }

  /// Elements of the live weight that are not those of a seed.
  std::int64_t wrong(std::uint64_t seed) {
    WRELOAD_TEST_CUDA(cudaMemset(wrong_, 0, 8));
    count_wrong<<<1024, 256>>>(reinterpret_cast<const std::uint16_t*>(weight_), static_cast<std::uint64_t>(rows_),
                               static_cast<std::uint64_t>(cols_), seed, reinterpret_cast<unsigned long long*>(wrong_));
    WRELOAD_TEST_CUDA(cudaGetLastError());
    std::int64_t count = 0;
    memory_.read(&count, wrong_, 8);
    return count;
  }

 private:
  std::int64_t rows_, cols_, blocks_;
  test_memory<cuda_executor> memory_ = {};
  model<cuda_executor> model_;
  std::byte* weight_ = nullptr;
  std::byte* scale_ = nullptr;
  std::byte* wrong_ = nullptr;
  std::byte* codes_[2] = {};
  std::byte* scales_[2] = {};
};

}  // namespace
}  // namespace wreload::test
