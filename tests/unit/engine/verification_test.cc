#include "server/engine/verification.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/calls.h"

namespace rlk::server {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
OutputCheck Judge(DType dtype, const std::vector<T>& values, const std::vector<double>& gold,
                  const Tolerance& tolerance) {
  return CompareWithReference("y", dtype, std::as_bytes(std::span(values)), gold, tolerance);
}

TEST(CompareWithReference, TheRuleAtItsEdges) {
  struct Case {
    float value;
    double gold;
    Tolerance tolerance;
    bool passed;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Case kCases[] = {
      {1.0f, 1.0, {0, 0}, true},
      {1.0f, 1.5, {0.5, 0}, true},
      {1.0f, 1.5, {0.4999, 0}, false},
      {1.0f, 2.0, {0, 0.5}, true},   // relative to the reference,
      {2.0f, 1.0, {0, 0.5}, false},  // not to the value
      {-1.0f, -1.5, {0.25, 0.17}, true},
      {-0.0f, 0.0, {0, 0}, true},
      {nan, kNan, {0, 0}, true},
      {nan, 0.0, {1e9, 1e9}, false},
      {0.0f, kNan, {1e9, 1e9}, false},
      {infinity, kInfinity, {0, 0}, true},
      {infinity, -kInfinity, {1e9, 1e9}, false},
      {-infinity, -kInfinity, {0, 0}, true},
      {infinity, 3e38, {1e9, 1e9}, false},
      {1.0f, kInfinity, {1e9, 1e9}, false},
      {infinity, 1e39, {0, 0}, true},  // what 1e39 rounds to
      {-infinity, 1e39, {0, 0}, false},
      {3.4028235e38f, 1e39, {0, 0}, false},
  };
  for (const Case& c : kCases) {
    const OutputCheck check = Judge<float>(DType::kF32, {c.value}, {c.gold}, c.tolerance);
    EXPECT_EQ(check.passed, c.passed) << c.value << " against " << c.gold;
    EXPECT_EQ(check.mismatched, c.passed ? 0 : 1);
    EXPECT_EQ(check.compared, 1);
  }
}

TEST(CompareWithReference, FindsPlantedFaults) {
  std::vector<float> good(1000);
  std::vector<double> gold(1000);
  for (size_t i = 0; i < good.size(); ++i) {
    gold[i] = std::sin(static_cast<double>(i)) * 10;
    good[i] = static_cast<float>(gold[i]);
  }
  const Tolerance row{1e-5, 1e-5};
  EXPECT_TRUE(Judge(DType::kF32, good, gold, row).passed);

  std::vector<float> scaled = good;
  for (float& value : scaled) value *= 1.05f;
  const OutputCheck check = Judge(DType::kF32, scaled, gold, row);
  EXPECT_FALSE(check.passed);
  EXPECT_GT(check.mismatched, 990);
  EXPECT_NEAR(check.max_rel_error, 0.05, 1e-6);
  EXPECT_NEAR(check.max_abs_error, 0.5, 0.01);

  EXPECT_FALSE(Judge(DType::kF32, std::vector<float>(1000), gold, row).passed);
  std::vector<float> one = good;
  one[999] += 0.01f;
  EXPECT_EQ(Judge(DType::kF32, one, gold, row).mismatched, 1);
  // A result of the wrong length passes nothing.
  one.pop_back();
  EXPECT_EQ(Judge(DType::kF32, one, gold, row).mismatched, 1000);
}

// All patterns of the 16-bit types, against the compiler's own arithmetic.
TEST(CompareWithReference, ReadsEverySixteenBitPattern) {
  std::vector<uint16_t> values;
  std::vector<double> bf16, f16;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    values.push_back(static_cast<uint16_t>(bits));
    bf16.push_back(std::bit_cast<float>(bits << 16));
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    // 2^112 moves the half's exponent bias to that of FP32, subnormals included.
    double value = static_cast<double>(std::bit_cast<float>((bits & 0x7fff) << 13)) * 0x1p112;
    if (exponent == 31) value = fraction == 0 ? kInfinity : kNan;
    f16.push_back((bits & 0x8000) != 0 ? -value : value);
  }
  EXPECT_EQ(Judge(DType::kBF16, values, bf16, {}).mismatched, 0);
  EXPECT_EQ(Judge(DType::kF16, values, f16, {}).mismatched, 0);
}

TEST(CompareWithReference, OverflowFollowsTheDType) {
  EXPECT_TRUE(Judge<uint16_t>(DType::kF16, {0x7c00}, {65520}, {}).passed);
  EXPECT_FALSE(Judge<uint16_t>(DType::kF16, {0x7c00}, {65519.9}, {}).passed);
  EXPECT_TRUE(Judge<uint16_t>(DType::kBF16, {0xff80}, {-0x1p128}, {}).passed);
  EXPECT_FALSE(Judge<double>(DType::kF64, {kInfinity}, {1e308}, {}).passed);
}

TEST(CompareWithReference, CountsWhatIsNonFiniteOnlyHere) {
  const auto infinity = std::numeric_limits<float>::infinity();
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  // Of all nine pairs, those whose reference is finite and whose value is not.
  const OutputCheck check =
      Judge<float>(DType::kF32, {1, infinity, nan, 1, infinity, nan, 1, infinity, nan},
                   {1, 1, 1, kInfinity, kInfinity, kInfinity, kNan, kNan, kNan}, {1e9, 1e9});
  EXPECT_EQ(check.nonfinite, 2);
  // A finite value that the dtype cannot hold.
  EXPECT_EQ(Judge<uint16_t>(DType::kF16, {0x7c00, 0x3c00}, {65520, 1}, {}).nonfinite, 1);
}

TEST(CompareBits, CountsElementsAndNamesTheFirst) {
  std::vector<float> values(100, 1.0f);
  const HostBytes a = test::ToBytes(values, 3);
  EXPECT_EQ(CompareBits(DType::kF32, a, test::ToBytes(values, 7, true)).mismatched, 0);
  values[17] = std::bit_cast<float>(std::bit_cast<uint32_t>(1.0f) ^ 1);
  values[18] = -1e30f;
  values[99] = 2;
  for (int pieces : {1, 4, 400}) {
    const BitComparison comparison =
        CompareBits(DType::kF32, a, test::ToBytes(values, pieces, true));
    EXPECT_EQ(comparison.compared, 100);
    EXPECT_EQ(comparison.mismatched, 3);
    EXPECT_EQ(comparison.first, 17);
  }
}

TEST(CompareBits, SeesNanPayloadsAndSignedZeros) {
  const auto bits = [](uint32_t pattern) { return test::ToBytes(std::vector<uint32_t>{pattern}); };
  EXPECT_EQ(CompareBits(DType::kF32, bits(0x7fffffff), bits(0x7fc00000)).mismatched, 1);
  EXPECT_EQ(CompareBits(DType::kF32, bits(0), bits(0x80000000)).mismatched, 1);
  EXPECT_EQ(CompareBits(DType::kF32, bits(0x7fffffff), bits(0x7fffffff)).mismatched, 0);
}

TEST(OutputTolerance, TheComparedDTypeAndTheDirectionPickTheRow) {
  MethodSignature signature;
  signature.op_class = OpClass::kReduction;
  const ToleranceContract& contract = ToleranceContract::Builtin();
  signature.direction = Direction::kForward;
  EXPECT_EQ(OutputTolerance(contract, signature, DType::kBF16)->atol, 5e-2);
  EXPECT_EQ(OutputTolerance(contract, signature, DType::kF32)->atol, 1e-4);
  signature.direction = Direction::kUpdate;
  EXPECT_EQ(OutputTolerance(contract, signature, DType::kBF16)->atol, 5e-2);
  signature.direction = Direction::kBackward;
  EXPECT_EQ(OutputTolerance(contract, signature, DType::kBF16)->atol, 1e-1);
  EXPECT_EQ(OutputTolerance(contract, signature, DType::kI64)->atol, 0);
  EXPECT_FALSE(OutputTolerance(contract, signature, DType::kF64).ok());
}

}  // namespace
}  // namespace rlk::server
