#include "kernels/arith/convert.h"

#include <cmath>

#include "gtest/gtest.h"

namespace rlk::arith {
namespace {

// Value of a 16-bit float, from its definition.
double Value(uint32_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int exponent = static_cast<int>((bits & 0x7fff) >> fraction_bits);
  const int fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                    : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

TEST(Convert, UpConversionsAreExactForAllPatterns) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    ASSERT_EQ(FloatBits(Bf16ToFloat(bits)), h << 16);
    if ((h & 0x7fff) > 0x7c00) {
      ASSERT_EQ(FloatBits(F16ToFloat(bits)),
                ((h & 0x8000) << 16) | 0x7f800000u | ((h & 0x3ff) << 13));
    } else if ((h & 0x7fff) == 0x7c00) {
      ASSERT_EQ(FloatBits(F16ToFloat(bits)), ((h & 0x8000) << 16) | 0x7f800000u);
    } else {
      ASSERT_EQ(F16ToFloat(bits), Value(h, 5));
      ASSERT_EQ(std::signbit(F16ToFloat(bits)), (h & 0x8000) != 0);
    }
  }
}

// At every boundary between two neighbours, and just beside it.
TEST(Convert, CastsRoundToNearestEvenAtEveryBoundary) {
  for (int exponent_bits : {5, 8}) {
    const uint32_t infinity = exponent_bits == 5 ? 0x7c00 : 0x7f80;
    for (uint32_t low = 0; low < infinity; ++low) {
      const double middle = (Value(low, exponent_bits) + Value(low + 1, exponent_bits)) / 2;
      const auto at = static_cast<float>(middle);
      if (at != middle || std::isinf(at)) continue;  // BF16 below 2^-149 has no such float
      const auto cast = [&](float x) -> uint32_t {
        return exponent_bits == 5 ? FloatToF16(x) : FloatToBf16(x);
      };
      ASSERT_EQ(cast(at), low + (low & 1)) << low;
      ASSERT_EQ(cast(std::nextafter(at, 0.0f)), low) << low;
      ASSERT_EQ(cast(std::nextafter(at, INFINITY)), low + 1) << low;
      ASSERT_EQ(cast(-at), (low + (low & 1)) | 0x8000) << low;
    }
  }
}

TEST(Convert, EveryNanBecomesTheCanonicalOne) {
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc00000u}) {
    EXPECT_EQ(FloatToF16(BitsFloat(bits)), 0x7fff);
    EXPECT_EQ(FloatToBf16(BitsFloat(bits)), 0x7fff);
    EXPECT_EQ(FloatBits(Canonical(BitsFloat(bits))), 0x7fffffffu);
  }
  EXPECT_EQ(FloatToF16(INFINITY), 0x7c00);
  EXPECT_EQ(FloatToBf16(-INFINITY), 0xff80);
}

}  // namespace
}  // namespace rlk::arith
