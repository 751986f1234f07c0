#include <wreload/wreload.hpp>

int from_a();

int main() { return from_a() == WRELOAD_VERSION_MAJOR ? 0 : 1; }
