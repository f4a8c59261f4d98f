// Element types. The numbers are those of rlk.v1.DataType and enter the digest preamble.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rlk {

enum class DType : uint8_t {
  kUnspecified = 0,
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kF64 = 4,
  kI32 = 5,
  kI64 = 6,
  kU8 = 7,
  kBool = 8,
};

inline constexpr int kDTypeCount = 9;

// Bytes of one element; 0 for kUnspecified.
constexpr int64_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU8:
    case DType::kBool:
      return 1;
    case DType::kUnspecified:
      return 0;
  }
  return 0;
}

// "F32", "BF16", ...: the name in messages, metrics and the command.
constexpr std::string_view DTypeName(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {"UNSPECIFIED", "F32", "F16", "BF16", "F64",
                                                    "I32",         "I64", "U8",  "BOOL"};
  const auto index = static_cast<size_t>(dtype);
  return index < kDTypeCount ? kNames[index] : kNames[0];
}

constexpr bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

}  // namespace rlk
