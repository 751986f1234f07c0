#pragma once
/// Macros that the rest of the library needs; together with version.hpp the only place that defines any.

/// Marks a function that device code may call too; empty for a plain C++ compiler.
#if defined(__CUDACC__)
#define WRELOAD_HOST_DEVICE __host__ __device__
#else
#define WRELOAD_HOST_DEVICE
#endif

/// Hides kernels and what launches them, so that two engine libraries in one process never swap launchers.
#define WRELOAD_HIDDEN __attribute__((visibility("hidden")))

/// Non-zero where the translation unit was compiled with -ffinite-math-only (part of -ffast-math): NaN codes would
/// not survive, so `seal()` refuses there.
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#define WRELOAD_FINITE_MATH_ONLY 1
#else
#define WRELOAD_FINITE_MATH_ONLY 0
#endif
