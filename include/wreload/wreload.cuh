#pragma once
/// wreload with CUDA: everything of <wreload/wreload.hpp> and `cuda_executor`. Needs nvcc (or another CUDA compiler) and
/// C++20. Including it compiles no kernel; `model<cuda_executor>` does.

#include "executor/cuda.cuh"
#include "wreload.hpp"
