#include "client/cli/elements.h"

#include <charconv>
#include <cmath>
#include <cstring>

namespace rlk::cli {
namespace {

constexpr uint16_t kNan16 = 0x7fff;

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

template <typename T>
std::string NumberText(T value) {
  if (value != value) return "nan";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end.ptr);
}

}  // namespace

uint16_t ToBf16(float value) {
  if (std::isnan(value)) return kNan16;
  const auto bits = std::bit_cast<uint32_t>(value);
  // Adds just below half of the last place kept, or exactly half where that place is odd.
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t ToF16(float value) {
  if (std::isnan(value)) return kNan16;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) {
    // Subnormal results are multiples of 2^-24; the scaling is exact, nearbyint rounds once.
    return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  }
  int exponent = 0;
  const float fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  const auto significand = static_cast<uint32_t>(std::nearbyint(fraction * 0x1p11f));
  // A significand that rounded up to 2^11 carries into the exponent by itself.
  return sign | static_cast<uint16_t>(((exponent + 13) << 10) + significand);
}

float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float FromF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  float magnitude;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::string ElementText(DType dtype, const std::byte* data) {
  switch (dtype) {
    case DType::kF32:
      return NumberText(Load<float>(data));
    case DType::kF16:
      return NumberText(FromF16(Load<uint16_t>(data)));
    case DType::kBF16:
      return NumberText(FromBf16(Load<uint16_t>(data)));
    case DType::kF64:
      return NumberText(Load<double>(data));
    case DType::kI32:
      return std::to_string(Load<int32_t>(data));
    case DType::kI64:
      return std::to_string(Load<int64_t>(data));
    case DType::kU8:
      return std::to_string(Load<uint8_t>(data));
    case DType::kBool:
      return Load<uint8_t>(data) != 0 ? "true" : "false";
    case DType::kUnspecified:
      break;
  }
  return "?";
}

std::string LowerCase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

DType DTypeFromText(const std::string& text) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (LowerCase(text) == LowerCase(std::string(DTypeName(dtype)))) return dtype;
  }
  return DType::kUnspecified;
}

std::string DTypeNames() {
  std::string names;
  for (int i = 1; i < kDTypeCount; ++i) {
    names += (i == 1 ? "" : ", ") + LowerCase(std::string(DTypeName(static_cast<DType>(i))));
  }
  return names;
}

}  // namespace rlk::cli
