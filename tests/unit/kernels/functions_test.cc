// The function set f32-v1: stored digests, agreement of the instruction sets, special values, and
// (RLK_TEST_FULL=1) the maximum error against FP64 over all inputs.
#include "kernels/arith/functions.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/arith/function_loops.h"
#include "kernels/core/cpu_features.h"
#include "kernels/core/parallel.h"
#include "tests/support/golden_json.h"

namespace rlk::arith {
namespace {

constexpr uint64_t kAllInputs = uint64_t{1} << 32;

int Threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

bool FullSet() {
  const char* full = getenv("RLK_TEST_FULL");
  return full != nullptr && std::string(full) == "1";
}

uint64_t Stored(int function, const char* kind) {
  static const nlohmann::json golden = test::LoadGolden("digests_functions.json");
  return test::Hex64(golden.at("digests").at(kFunctionNames[function]).at(kind));
}

uint64_t DigestOfAll(Isa isa, int function) {
  ThreadPool pool(Threads());
  std::mutex mutex;
  uint64_t sum = 0;
  pool.ParallelFor(int64_t{1} << 32, int64_t{1} << 24, [&](int64_t begin, int64_t end) {
    const uint64_t part = GetFunctionLoops(isa).digest[function](static_cast<uint64_t>(begin),
                                                                 static_cast<uint64_t>(end));
    std::lock_guard<std::mutex> lock(mutex);
    sum += part;
  });
  return sum;
}

uint64_t DigestOfEvery61st(Isa isa, int function) {
  std::vector<uint32_t> bits(1 << 16);
  uint64_t h = 0;
  for (uint64_t u = 0; u < kAllInputs;) {
    const auto count =
        static_cast<int64_t>(std::min<uint64_t>((kAllInputs - u + 60) / 61, bits.size()));
    GetFunctionLoops(isa).evaluate[function](static_cast<uint32_t>(u), 61, count, bits.data());
    for (int64_t k = 0; k < count; ++k) {
      h = h * 0x9e3779b97f4a7c15u + bits[static_cast<size_t>(k)];
    }
    u += static_cast<uint64_t>(count) * 61;
  }
  return h;
}

class FunctionTest : public testing::TestWithParam<int> {};

TEST_P(FunctionTest, Every61stPatternHasTheStoredBits) {
  EXPECT_EQ(DigestOfEvery61st(BestIsa(), GetParam()), Stored(GetParam(), "every_61st"));
}

// Without vectors this takes minutes, so it then belongs to the full set.
TEST_P(FunctionTest, AllPatternsHaveTheStoredBits) {
  if (BestIsa() < Isa::kV3 && !FullSet()) GTEST_SKIP() << "no AVX2: RLK_TEST_FULL=1 runs it";
  EXPECT_EQ(DigestOfAll(BestIsa(), GetParam()), Stored(GetParam(), "all"));
}

// A sample that no stride divides, and dense pieces around the places where a path changes.
TEST_P(FunctionTest, InstructionSetsAgree) {
  const int f = GetParam();
  struct Range {
    uint32_t first, step;
    int64_t count;
  };
  constexpr int64_t kDense = 20000;
  const std::vector<Range> ranges = {{0, 8191, (int64_t{1} << 32) / 8191},
                                     {0x00000000, 1, kDense},
                                     {0x007fe000, 1, kDense},
                                     {0x3f7fe000, 1, kDense},
                                     {0x41100000, 1, kDense},
                                     {0x42b16000, 1, kDense},
                                     {0x487fe000, 1, kDense},
                                     {0x7f7fe000, 1, kDense},
                                     {0xbf7fe000, 1, kDense},
                                     {0xc2ae0000, 1, kDense},
                                     {0xc2cfe000, 1, kDense},
                                     {0xff7fe000, 1, kDense}};
  for (const Range& range : ranges) {
    std::vector<uint32_t> expected(static_cast<size_t>(range.count)), bits(expected.size());
    GetFunctionLoops(Isa::kBase).evaluate[f](range.first, range.step, range.count, expected.data());
    for (Isa isa : AvailableIsas()) {
      GetFunctionLoops(isa).evaluate[f](range.first, range.step, range.count, bits.data());
      ASSERT_EQ(bits, expected) << IsaName(isa) << " from " << std::hex << range.first;
    }
  }
}

TEST_P(FunctionTest, DigestSeesASingleBit) {
  const auto first = uint32_t{0x3f800000};
  uint32_t bits = 0;
  GetFunctionLoops(BestIsa()).evaluate[GetParam()](first, 1, 1, &bits);
  for (int bit = 0; bit < 32; ++bit) {
    EXPECT_NE(DigestTerm(first, bits ^ (1u << bit)), DigestTerm(first, bits));
  }
}

double Exact(int function, double x) {
  switch (static_cast<Function>(function)) {
    case Function::kExp:
      return std::exp(x);
    case Function::kTanh:
      return std::tanh(x);
    case Function::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case Function::kSilu:
      return x / (1.0 + std::exp(-x));
    case Function::kRsqrt:
      return 1.0 / std::sqrt(x);
    case Function::kLog1p:
      return std::log1p(x);
    case Function::kSin:
      return std::sin(x);
    case Function::kCos:
      return std::cos(x);
  }
  return 0;
}

struct Measured {
  double ulp_max = 0;
  uint32_t at = 0;
  int64_t compared = 0, not_rounded = 0;
};

// Distance from the exact value in units of the last place of its FP32 neighbour.
void Measure(int function, uint32_t pattern, uint32_t bits, Measured& measured) {
  const float x = BitsFloat(pattern), y = BitsFloat(bits);
  const double exact = Exact(function, x);
  if (!std::isfinite(exact) || !std::isfinite(y) || std::isnan(x)) return;
  // Beyond FP32's range the result is an infinity and not compared; silu below -87 has a bound of
  // its own, in absolute terms.
  if (static_cast<Function>(function) == Function::kSilu && x < -87.0f) return;
  // 2^exponent <= |exact| < 2^(exponent + 1), but no less than FP32's least normal exponent; below
  // it the units are those of the subnormals. By its bits: four billion of these are made.
  const uint64_t exact_bits = std::bit_cast<uint64_t>(exact);
  const uint64_t exponent = std::max<uint64_t>(exact_bits >> 52 & 0x7ff, 1023 - 126);
  const double per_ulp = std::bit_cast<double>((1023 + 1023 + 23 - exponent) << 52);
  const double error = std::abs(y - exact) * per_ulp;
  ++measured.compared;
  if (FloatBits(static_cast<float>(exact)) != bits && y != exact) ++measured.not_rounded;
  if (error > measured.ulp_max) {
    measured.ulp_max = error;
    measured.at = pattern;
  }
}

Measured MeasureRange(int function, uint64_t begin, uint64_t end, uint32_t step) {
  Measured total;
  std::mutex mutex;
  ThreadPool pool(Threads());
  const auto count = static_cast<int64_t>((end - begin + step - 1) / step);
  pool.ParallelFor(count, 1 << 16, [&](int64_t first, int64_t last) {
    Measured part;
    std::vector<uint32_t> bits(1 << 16);
    for (int64_t k = first; k < last; k += 1 << 16) {
      const int64_t piece = std::min<int64_t>(1 << 16, last - k);
      const auto start = static_cast<uint32_t>(begin + static_cast<uint64_t>(k) * step);
      GetFunctionLoops(BestIsa()).evaluate[function](start, step, piece, bits.data());
      for (int64_t i = 0; i < piece; ++i) {
        const uint32_t pattern = start + static_cast<uint32_t>(i) * step;
        const bool angle = function >= static_cast<int>(Function::kSin);
        if (angle && (pattern & 0x7fffffffu) > 0x48800000u) continue;
        Measure(function, pattern, bits[static_cast<size_t>(i)], part);
      }
    }
    std::lock_guard<std::mutex> lock(mutex);
    if (part.ulp_max > total.ulp_max) {
      total.ulp_max = part.ulp_max;
      total.at = part.at;
    }
    total.compared += part.compared;
    total.not_rounded += part.not_rounded;
  });
  return total;
}

// The bounds that README.md states.
constexpr double kUlpBounds[kFunctionCount] = {0.893,  1.909, 2.782, 3.563,
                                               0.5001, 1.270, 1.495, 1.542};

TEST_P(FunctionTest, ErrorOverASampleIsWithinTheStatedBound) {
  const Measured measured = MeasureRange(GetParam(), 0, kAllInputs, 4093);
  EXPECT_LE(measured.ulp_max, kUlpBounds[GetParam()]) << std::hex << measured.at;
  EXPECT_GT(measured.compared, 200000);
  EXPECT_GT(measured.ulp_max, 0.4) << "the measure works";
}

TEST_P(FunctionTest, FullErrorOverAllInputsIsWithinTheStatedBound) {
  if (!FullSet()) GTEST_SKIP() << "RLK_TEST_FULL=1 runs it";
  const Measured measured = MeasureRange(GetParam(), 0, kAllInputs, 1);
  printf("%s: max %.4f ulp at %08x, %.3f %% not correctly rounded of %lld\n",
         kFunctionNames[GetParam()], measured.ulp_max, measured.at,
         100.0 * static_cast<double>(measured.not_rounded) / static_cast<double>(measured.compared),
         static_cast<long long>(measured.compared));
  EXPECT_LE(measured.ulp_max, kUlpBounds[GetParam()]);
}

INSTANTIATE_TEST_SUITE_P(F32V1, FunctionTest, testing::Range(0, kFunctionCount),
                         [](const testing::TestParamInfo<int>& info) {
                           return std::string(kFunctionNames[info.param]);
                         });

struct Special {
  float (*function)(float);
  float x;
  uint32_t expected;
};

TEST(Functions, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr uint32_t kNan = kNanF32, kOne = 0x3f800000, kInf = 0x7f800000;
  const auto exp = [](float x) { return Exp(x); };
  const auto tanh = [](float x) { return Tanh(x); };
  const auto sigmoid = [](float x) { return Sigmoid(x); };
  const auto silu = [](float x) { return Silu(x); };
  const auto log1p = [](float x) { return Log1p(x); };
  const auto rsqrt = [](float x) { return Rsqrt(x); };
  const auto sine = [](float x) { return Sin(x); };
  const std::vector<Special> cases = {
      {exp, 0.0f, kOne},          {exp, inf, kInf},          {exp, -inf, 0},
      {exp, nan, kNan},           {tanh, -0.0f, 0x80000000}, {tanh, 0.0f, 0},
      {tanh, inf, kOne},          {tanh, -inf, 0xbf800000},  {tanh, nan, kNan},
      {tanh, 9.02f, kOne},        {tanh, 0x1p-149f, 1},      {sigmoid, inf, kOne},
      {sigmoid, -inf, 0},         {sigmoid, nan, kNan},      {sigmoid, -0.0f, 0x3f000000},
      {silu, -0.0f, 1u << 31},    {silu, nan, kNan},         {silu, inf, kInf},
      {log1p, -1.0f, 0xff800000}, {log1p, -1.5f, kNan},      {log1p, -0.0f, 0x80000000},
      {log1p, inf, kInf},         {log1p, nan, kNan},        {rsqrt, 0.0f, kInf},
      {rsqrt, -1.0f, kNan},       {rsqrt, inf, 0},           {sine, -0.0f, 0},
  };
  for (const Special& c : cases) {
    EXPECT_EQ(FloatBits(Canonical(c.function(c.x))), c.expected) << c.x;
  }
}

// Below -87 the result nears the subnormals, and an error in units of the last place says little.
TEST(Functions, SiluBelowMinus87HasASmallAbsoluteError) {
  for (uint32_t bits = 0xc2ae0000u; bits < 0xff800000u; bits += 997) {
    const double x = BitsFloat(bits);
    const double exact = x / (1.0 + std::exp(-x));
    ASSERT_LE(std::abs(Silu(BitsFloat(bits)) - exact), -x * 1.25 * 0x1p-149) << std::hex << bits;
  }
}

TEST(Functions, TanhIsMonotoneAndNeverAboveOne) {
  float previous = 0.0f;
  for (uint32_t bits = 0; bits <= 0x41200000u; bits += 37) {
    const float y = Tanh(BitsFloat(bits));
    ASSERT_LE(previous, y);
    ASSERT_LE(y, 1.0f);
    previous = y;
  }
}

}  // namespace
}  // namespace rlk::arith
