// One of two files that include the whole library: see check.py.
#include <wreload/wreload.hpp>

int from_a() { return WRELOAD_VERSION_MAJOR; }
