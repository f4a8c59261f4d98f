#include "kernels/core/fp_environment.h"

#include <cfenv>
#include <thread>

#include "gtest/gtest.h"
#include "kernels/core/parallel.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rlk {
namespace {

// Values behind volatile, so that the compiler cannot fold them.
float Third() {
  volatile float one = 1.0f, three = 3.0f;
  return one / three;
}

float HalfOfSmallestNormal() {
  volatile float smallest = 0x1p-126f, half = 0.5f;
  return smallest * half;
}

float SubnormalTimesTwo24() {
  volatile float smallest = 0x1p-149f, scale = 0x1p24f;
  return smallest * scale;
}

#if defined(__x86_64__)
TEST(FpEnvironment, SetsRoundingAndKeepsSubnormalsWhateverItFinds) {
  const unsigned before = _mm_getcsr();
  for (unsigned rounding : {0x0000u, 0x2000u, 0x4000u, 0x6000u}) {
    for (unsigned flush : {0x0000u, 0x8000u, 0x0040u, 0x8040u}) {
      const unsigned hostile = 0x1f80u | rounding | flush;
      _mm_setcsr(hostile);
      {
        const FpEnvironment environment;
        EXPECT_EQ(Third(), 0x1.555556p-2f);
        EXPECT_EQ(HalfOfSmallestNormal(), 0x1p-127f);
        EXPECT_EQ(SubnormalTimesTwo24(), 0x1p-125f);
      }
      EXPECT_EQ(_mm_getcsr() & ~0x3fu, hostile & ~0x3fu) << "the former environment is restored";
      _mm_setcsr(before);
    }
  }
}

TEST(FpEnvironment, ReachesPoolThreadsThatWereMadeUnderAnotherOne) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0x1f80u | 0x8040u | 0x6000u);
  ThreadPool pool(3);
  _mm_setcsr(before);
  std::vector<float> values(64);
  pool.ParallelFor(64, 1, [&](int64_t begin, int64_t end) {
    const FpEnvironment environment;
    for (int64_t i = begin; i < end; ++i) values[i] = HalfOfSmallestNormal();
  });
  for (float value : values) EXPECT_EQ(value, 0x1p-127f);
}
#endif

}  // namespace
}  // namespace rlk
