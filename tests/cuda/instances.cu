// The kernels of the library, compiled once for all files of an executable (see tests/cuda_memory.cuh).
#include <wreload/wreload.cuh>

template class wreload::basic_cuda_executor<>;
