// Law 10 under -use_fast_math. An executable of its own: linked with other files, their kernels of the same name might be
// the ones that run. tests/meson.build gives the flag and, since the flag shows in no macro, WRELOAD_TEST_FAST_MATH.
#include "numerics_cases.cuh"

namespace wreload::test {

#if !defined(WRELOAD_TEST_FAST_MATH)
#error "compile this file with -use_fast_math -DWRELOAD_TEST_FAST_MATH"
#endif

namespace {
__global__ void half_of_smallest(float* value) { *value *= 0.5F; }
}  // namespace

TEST_CASE("cuda, fast math: the flag is on, operators flush subnormals") {
  test_memory<cuda_executor> memory;
  std::byte* value = memory.allocate(4, std::byte{0});
  const std::uint32_t smallest_normal = 0x00800000U;
  memory.write(value, &smallest_normal, 4);
  half_of_smallest<<<1, 1>>>(reinterpret_cast<float*>(value));
  WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
  std::uint32_t found = 1;
  memory.read(&found, value, 4);
  CHECK(found == 0);
}

TEST_CASE("cuda, fast math: all 256 codes x edge scales equal the host, every format") { check_all_formats(); }

TEST_CASE("cuda, fast math: every code of every widening equals the host") { check_all_widenings(); }

}  // namespace wreload::test
