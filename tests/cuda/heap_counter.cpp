// Replaces the global operators for tests/cuda/bounds_test.cu, which cannot do so itself.
#include "../heap_counter.hpp"
