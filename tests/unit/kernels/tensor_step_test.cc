// The law of a tensor-core step against exact arithmetic written another way.
#include "kernels/arith/tensor_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/arith/step_vectors.h"

namespace rlk {
namespace {

using arith::StepData;

struct Step {
  uint16_t a[arith::kStepProducts], b[arith::kStepProducts];
  uint32_t c = 0;
};

Step DrawStep(uint64_t index, StepData data) {
  Step step;
  for (uint64_t i = 0; i < arith::kStepProducts; ++i) {
    step.a[i] = arith::DrawStepOperand(index * 64 + i, data);
    step.b[i] = arith::DrawStepOperand(index * 64 + 32 + i, data);
  }
  if (data == StepData::kCancellation) {
    for (int i = 0; i < 8; ++i) {
      step.a[8 + i] = step.a[i] ^ 0x8000;
      step.b[8 + i] = step.b[i];
    }
  }
  step.c = arith::DrawStepAccumulator(index, data);
  return step;
}

// floor(log2 |x|) of a normal or subnormal BF16 whose subnormals have the smallest normal's.
int ExponentOf(float x) { return std::max(std::ilogb(x), -126); }

// In doubles: every product is exact, terms are cut by trunc, their sum is below 2^33.
uint32_t ReferenceStep(const Step& step) {
  double terms[17];
  int exponents[17];
  double specials = 0;
  bool special = false;
  for (int i = 0; i < 17; ++i) {
    const float a = i < 16 ? arith::Bf16ToFloat(step.a[i]) : arith::BitsFloat(step.c);
    const float b = i < 16 ? arith::Bf16ToFloat(step.b[i]) : 1.0f;
    terms[i] = double{a} * double{b};
    if (!std::isfinite(a) || !std::isfinite(b)) {
      special = true;
      specials += terms[i];
    } else if (terms[i] != 0) {
      exponents[i] = ExponentOf(a) + ExponentOf(b);
    }
  }
  if (special) {
    if (std::isnan(specials)) return arith::kNanF32;
    return arith::FloatBits(static_cast<float>(specials));
  }
  int top = -133;
  for (int i = 0; i < 17; ++i) {
    if (terms[i] != 0) top = std::max(top, exponents[i]);
  }
  double sum = 0;
  for (double term : terms) sum += std::trunc(std::ldexp(term, 25 - top));
  if (sum == 0) return 0;
  const double value = std::ldexp(sum, top - 25);
  // The last place of FP32 at this magnitude.
  const int place = std::max(std::ilogb(value) - 23, -149);
  const double cut = std::ldexp(std::trunc(std::ldexp(value, -place)), place);
  if (std::fabs(cut) >= 0x1p128) return cut > 0 ? 0x7f800000u : 0xff800000u;
  return cut == 0 ? 0u : arith::FloatBits(static_cast<float>(cut));
}

class TensorStep : public testing::TestWithParam<int> {};

TEST_P(TensorStep, EqualsExactArithmetic) {
  const auto data = static_cast<StepData>(GetParam());
  for (uint64_t i = 0; i < 200'000; ++i) {
    const Step step = DrawStep(i, data);
    ASSERT_EQ(arith::TensorStep(step.a, step.b, step.c), ReferenceStep(step)) << "step " << i;
  }
}

TEST_P(TensorStep, DoesNotDependOnTheOrderOfPairsOrTheRoles) {
  const auto data = static_cast<StepData>(GetParam());
  for (uint64_t i = 0; i < 20'000; ++i) {
    Step step = DrawStep(i, data);
    const uint32_t expected = arith::TensorStep(step.a, step.b, step.c);
    ASSERT_EQ(arith::TensorStep(step.b, step.a, step.c), expected);
    for (uint64_t k = 15; k > 0; --k) {
      const uint64_t other = arith::StepMix(i * 16 + k) % (k + 1);
      std::swap(step.a[k], step.a[other]);
      std::swap(step.b[k], step.b[other]);
    }
    ASSERT_EQ(arith::TensorStep(step.a, step.b, step.c), expected) << "step " << i;
  }
}

TEST_P(TensorStep, KeepsAnAccumulatorBesideZeros) {
  const uint16_t zeros[arith::kStepProducts] = {};
  for (uint64_t i = 0; i < 20'000; ++i) {
    const uint32_t c = arith::DrawStepAccumulator(i, static_cast<StepData>(GetParam()));
    const float value = arith::BitsFloat(c);
    const uint32_t expected = value == 0 ? 0u : arith::FloatBits(arith::Canonical(value));
    ASSERT_EQ(arith::TensorStep(zeros, zeros, c), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Data, TensorStep, testing::Range(0, arith::kStepDataCount),
                         [](const auto& info) { return arith::kStepDataNames[info.param]; });

struct NamedStep {
  const char* name;
  std::vector<std::pair<uint16_t, uint16_t>> products;
  uint32_t c, expected;
};

// One case for each sentence of the law.
TEST(TensorStepValues, FollowEachSentenceOfTheLaw) {
  const NamedStep kSteps[] = {
      {"nothing", {}, 0, 0},
      {"a zero's sign is lost", {}, 0x80000000u, 0},
      {"exact cancellation gives +0", {{0xbf80, 0x3f80}}, 0x3f800000u, 0},
      {"cut, not rounded: 1 + 255/256 ulp", {{0x3f80, 0x3f80}, {0x33ff, 0x3f80}}, 0, 0x3f800000u},
      {"cut toward zero: -1 - 255/256 ulp", {{0xbf80, 0x3f80}, {0xb3ff, 0x3f80}}, 0, 0xbf800000u},
      {"25 bits: 1 - 2^-25 is seen", {{0x3f80, 0x3f80}, {0xb300, 0x3f80}}, 0, 0x3f7fffffu},
      {"25 bits: 1 - 2^-26 is not", {{0x3f80, 0x3f80}, {0xb280, 0x3f80}}, 0, 0x3f800000u},
      {"products are not normalised: E is 0 for 1.5 * 1.5",
       {{0x3fc0, 0x3fc0},
        {0x3300, 0x3f80},
        {0x3300, 0x3f80},
        {0x3300, 0x3f80},
        {0x3300, 0x3f80},
        {0x3300, 0x3f80},
        {0x3300, 0x3f80},
        {0x3300, 0x3f80},
        {0x3300, 0x3f80}},
       0,
       0x40100001u},
      {"cut to nothing gives +0", {{0xa000, 0x1000}}, 0, 0},
      {"subnormal result", {{0x2000, 0x1a00}}, 0, 0x00000800u},
      {"overflow", {{0x7f00, 0x4000}, {0x7f00, 0x4000}}, 0, 0x7f800000u},
      {"negative overflow", {{0xff00, 0x4000}, {0x7f00, 0xc000}}, 0, 0xff800000u},
      {"infinity times zero", {{0x7f80, 0x8000}}, 0, 0x7fffffffu},
      {"infinities of both signs", {{0x7f80, 0x3f80}}, 0xff800000u, 0x7fffffffu},
      {"an infinity", {{0xff80, 0x3f80}, {0x3f80, 0x3f80}}, 0x3f800000u, 0xff800000u},
      {"NaN accumulator", {{0x3f80, 0x3f80}}, 0xffc12345u, 0x7fffffffu},
  };
  for (const NamedStep& named : kSteps) {
    Step step = {};
    for (size_t i = 0; i < named.products.size(); ++i) {
      step.a[i] = named.products[i].first;
      step.b[i] = named.products[i].second;
    }
    step.c = named.c;
    EXPECT_EQ(arith::TensorStep(step.a, step.b, step.c), named.expected) << named.name;
    EXPECT_EQ(ReferenceStep(step), named.expected) << named.name;
  }
}

// 1 + 2^-25 - 2^-25: the accumulator is a term like the products.
TEST(TensorStepValues, AccumulatorIsAlignedWithTheProducts) {
  Step step = {};
  step.a[0] = 0x3300;  // 2^-25
  step.b[0] = 0x3f80;
  EXPECT_EQ(arith::TensorStep(step.a, step.b, 0xb3000000u), 0u);
  EXPECT_EQ(arith::TensorStep(step.a, step.b, 0x3f800000u), 0x3f800000u);
  EXPECT_EQ(arith::TensorStep(step.a, step.b, 0xbf800000u), 0xbf7fffffu);
}

}  // namespace
}  // namespace rlk
