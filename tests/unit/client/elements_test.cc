#include "client/cli/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace rlk::cli {
namespace {

// Rounding is checked against its definition: the result is the nearest representable value, and
// the even one of two that are equally near.
template <typename From, typename To>
void CheckNearest(const From& from, const To& to, float value, float overflow) {
  const uint16_t bits = to(value);
  if (std::fabs(value) >= overflow) {
    EXPECT_TRUE(std::isinf(from(bits))) << value;
    EXPECT_EQ(std::signbit(from(bits)), std::signbit(value));
    return;
  }
  const double error = std::fabs(static_cast<double>(from(bits)) - value);
  EXPECT_EQ((bits & 0x8000) != 0, std::signbit(value)) << value;
  for (int step : {-1, 1}) {
    const int neighbour = (bits & 0x7fff) + step;
    if (neighbour < 0) continue;
    const float other = from(static_cast<uint16_t>((bits & 0x8000) | neighbour));
    if (std::isinf(other)) continue;
    const double other_error = std::fabs(static_cast<double>(other) - value);
    EXPECT_LE(error, other_error) << value;
    if (error == other_error) {
      EXPECT_EQ(bits & 1, 0) << value;
    }
  }
}

TEST(Elements, RoundsToNearestEven) {
  uint32_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    uint32_t word = state;
    // Half of the inputs lie on or next to the half-way points.
    if (i % 2 == 0) word = (word & 0xffff8000u) + static_cast<uint32_t>(i % 3) - 1;
    if (i % 4 == 1) word = (word & 0xfffff000u) + static_cast<uint32_t>(i % 3) - 1;
    const auto value = std::bit_cast<float>(word);
    if (!std::isfinite(value)) continue;
    CheckNearest(FromBf16, ToBf16, value, std::bit_cast<float>(0x7f7f8000u));
    CheckNearest(FromF16, ToF16, value, 65520.0f);
    if (HasFailure()) return;
  }
}

TEST(Elements, RoundTripsEveryPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    if (!std::isnan(FromBf16(pattern))) {
      ASSERT_EQ(ToBf16(FromBf16(pattern)), pattern);
    }
    if (!std::isnan(FromF16(pattern))) {
      ASSERT_EQ(ToF16(FromF16(pattern)), pattern);
    }
  }
  EXPECT_EQ(ToBf16(NAN), 0x7fff);
  EXPECT_EQ(ToF16(-NAN), 0x7fff);
}

TEST(Elements, WritesTextThatReadsBack) {
  const auto text = [](DType dtype, auto value) {
    return ElementText(dtype, reinterpret_cast<const std::byte*>(&value));
  };
  EXPECT_EQ(text(DType::kF32, 0.1f), "0.1");
  EXPECT_EQ(text(DType::kF32, -0.0f), "-0");
  EXPECT_EQ(text(DType::kF64, std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(text(DType::kF32, NAN), "nan");
  EXPECT_EQ(text(DType::kBF16, uint16_t{0xc000}), "-2");
  EXPECT_EQ(text(DType::kF16, uint16_t{0x0001}), "5.9604645e-08");
  EXPECT_EQ(text(DType::kI64, std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(text(DType::kU8, uint8_t{255}), "255");
  EXPECT_EQ(text(DType::kBool, uint8_t{1}), "true");
}

TEST(Elements, NamesEveryDtype) {
  EXPECT_EQ(DTypeNames(), "f32, f16, bf16, f64, i32, i64, u8, bool");
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromText(std::string(DTypeName(dtype))), dtype);
    EXPECT_EQ(DTypeFromText(LowerCase(std::string(DTypeName(dtype)))), dtype);
  }
  for (const char* text : {"", "unspecified", "float32", "bf", "f322"}) {
    EXPECT_EQ(DTypeFromText(text), DType::kUnspecified) << text;
  }
}

}  // namespace
}  // namespace rlk::cli
