#include "kernels/arith/known_answer.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/arith/function_loops.h"
#include "kernels/core/cpu_features.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rlk::arith {
namespace {

std::vector<uint32_t> Evaluate() {
  std::vector<uint32_t> results(kKnownAnswerCount);
  GetFunctionLoops(BestIsa()).known_answers(kKnownAnswers, kKnownAnswerCount, results.data());
  return results;
}

TEST(KnownAnswers, PassOnThisCpu) {
  const absl::StatusOr<int> passed = CpuKnownAnswers();
  ASSERT_TRUE(passed.ok()) << passed.status();
  EXPECT_EQ(*passed, kKnownAnswerCount);
}

TEST(KnownAnswers, AnyWrongBitIsNamed) {
  const std::vector<uint32_t> right = Evaluate();
  for (size_t i = 0; i < right.size(); ++i) {
    std::vector<uint32_t> results = right;
    results[i] ^= 1;
    const absl::StatusOr<int> passed = CompareKnownAnswers(results);
    ASSERT_FALSE(passed.ok());
    EXPECT_THAT(std::string(passed.status().message()),
                testing::HasSubstr("known answer " + std::to_string(i) + " ("));
  }
  std::vector<uint32_t> short_by_one(right.begin(), right.end() - 1);
  EXPECT_FALSE(CompareKnownAnswers(short_by_one).ok());
}

#if defined(__x86_64__)
// The vectors see what they are for: each hostile environment gives a wrong bit.
TEST(KnownAnswers, SeeRoundingModesAndFlushedSubnormals) {
  const unsigned before = _mm_getcsr();
  for (unsigned hostile : {0x2000u, 0x4000u, 0x6000u, 0x8000u, 0x0040u}) {
    _mm_setcsr(0x1f80u | hostile);
    const std::vector<uint32_t> results = Evaluate();
    const absl::StatusOr<int> guarded = CpuKnownAnswers();
    _mm_setcsr(before);
    EXPECT_FALSE(CompareKnownAnswers(results).ok()) << std::hex << hostile;
    EXPECT_TRUE(guarded.ok()) << guarded.status();
  }
}
#endif

}  // namespace
}  // namespace rlk::arith
