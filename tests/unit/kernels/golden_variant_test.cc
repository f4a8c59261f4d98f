#include "kernels/registry/golden_variant.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace rlk {
namespace {

// Value of a 16-bit float, from its definition.
double Value(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                    : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Around every boundary between neighbours: just below, at, and just above the middle.
TEST(RoundF64, Rounds16BitTypesOnceAtEveryBoundary) {
  for (int exponent_bits : {5, 8}) {
    const auto round = exponent_bits == 5 ? &RoundF64ToF16 : &RoundF64ToBf16;
    const uint16_t infinity = exponent_bits == 5 ? 0x7c00 : 0x7f80;
    for (uint32_t bits = 0; bits < infinity; ++bits) {
      const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
      const double below = Value(low, exponent_bits), above = Value(high, exponent_bits);
      const double middle = below + (above - below) / 2;
      const uint16_t even = (low & 1) ? high : low;
      ASSERT_EQ(round(below), low);
      ASSERT_EQ(round(std::nextafter(middle, 0.0)), low) << bits;
      ASSERT_EQ(round(middle), even) << bits;
      ASSERT_EQ(round(std::nextafter(middle, INFINITY)), high) << bits;
      ASSERT_EQ(round(-middle), even | 0x8000) << bits;
    }
  }
}

TEST(RoundF64, AgreesWithTheHardwareForF32) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000000; ++i) {
    // Exponents around the FP32 range.
    const uint64_t exponent = 1023 - 160 + random() % 300;
    const double x = std::bit_cast<double>((random() & 0x800fffffffffffffu) | (exponent << 52));
    ASSERT_EQ(std::bit_cast<uint32_t>(RoundF64ToF32(x)),
              std::bit_cast<uint32_t>(static_cast<float>(x)))
        << x;
  }
}

TEST(RoundF64, Specials) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(std::bit_cast<uint32_t>(RoundF64ToF32(std::nan("1"))), 0x7fffffffu);
  EXPECT_EQ(RoundF64ToF16(-std::nan("")), 0x7fff);
  EXPECT_EQ(RoundF64ToBf16(std::nan("")), 0x7fff);
  EXPECT_EQ(RoundF64ToBf16(-infinity), 0xff80);
  EXPECT_EQ(RoundF64ToF16(infinity), 0x7c00);
  EXPECT_EQ(RoundF64ToF16(-0.0), 0x8000);
  EXPECT_EQ(RoundF64ToF16(5e-324), 0);
  EXPECT_EQ(RoundF64ToF16(1e300), 0x7c00);
}

absl::Status WriteThirds(const KernelArgs& args) {
  EXPECT_EQ(args.outputs[0].dtype, DType::kF64);
  for (int64_t i = 0; i < args.outputs[0].elements(); ++i) {
    args.outputs[0].as<double>()[i] = static_cast<double>(i) / 3.0;
  }
  return absl::OkStatus();
}

TEST(LaunchGoldenRounded, RoundsToTheDtypeThatWasAsked) {
  std::vector<float> f32(4);
  std::vector<uint16_t> bf16(4);
  std::vector<double> f64(4);
  KernelArgs args;
  MutableTensorView y{DType::kF32, Dims{4}, f32.data()};
  args.outputs = {&y, 1};
  ASSERT_TRUE(LaunchGoldenRounded(&WriteThirds, args).ok());
  EXPECT_EQ(f32[1], 1.0f / 3.0f);
  y = {DType::kBF16, Dims{4}, bf16.data()};
  ASSERT_TRUE(LaunchGoldenRounded(&WriteThirds, args).ok());
  EXPECT_EQ(bf16[1], 0x3eab);
  y = {DType::kF64, Dims{4}, f64.data()};
  ASSERT_TRUE(LaunchGoldenRounded(&WriteThirds, args).ok());
  EXPECT_EQ(f64[1], 1.0 / 3.0);
  y = {DType::kI32, Dims{4}, f32.data()};
  EXPECT_EQ(LaunchGoldenRounded(&WriteThirds, args).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace rlk
