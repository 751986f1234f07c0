// The host environment checks see what they are meant to see.
#include <doctest/doctest.h>

#include <wreload/numerics/environment.hpp>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace wr = wreload;

TEST_CASE("this program computes as IEEE says") {
  CHECK_FALSE(wr::flushes_subnormals());
  CHECK_FALSE(wr::drops_nan());
}

#if defined(__SSE__)
TEST_CASE("flush to zero and denormals are zero are each seen") {
  const unsigned before = _mm_getcsr();
  for (const unsigned mode : {0x8000U, 0x0040U, 0x8040U}) {  // FTZ, DAZ, both
    _mm_setcsr(before | mode);
    const bool seen = wr::flushes_subnormals();
    _mm_setcsr(before);
    CAPTURE(mode);
    CHECK(seen);
  }
  CHECK_FALSE(wr::flushes_subnormals());
}
#endif
