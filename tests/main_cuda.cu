// main of the CUDA suites: without a GPU it says so, prints how many cases were not run, and exits 77 ("skipped").
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
  // Tests keep streams blocked on purpose. A stream must not share a hardware queue with a blocked one, and a kernel of
  // the test's own must not be loaded while another spins. (The environment may say otherwise.)
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  doctest::Context context(argc, argv);
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found == cudaSuccess && devices > 0) return context.run();
  std::printf("no CUDA device (%s): every case of this suite is skipped\n", cudaGetErrorString(found));
  const char* count_only[] = {argv[0], "--count"};
  context.applyCommandLine(2, count_only);
  const int counted = context.run();
  return counted == 0 ? 77 : counted;
}
