// Single elements: their conversion from FP32, and their text.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/core/dtype.h"

namespace rlk::cli {

// One rounding to nearest even; overflow to infinity, subnormal results kept. NaN becomes 0x7fff.
uint16_t ToBf16(float value);
uint16_t ToF16(float value);
// Exact.
float FromBf16(uint16_t bits);
float FromF16(uint16_t bits);

// The element at `data` (any alignment) as the shortest text that reads back to the same value;
// "nan", "inf", "-inf"; "true" and "false" for BOOL.
std::string ElementText(DType dtype, const std::byte* data);

// "bf16" or "BF16" -> DType::kBF16; kUnspecified for any other text.
DType DTypeFromText(const std::string& text);
// "f32, f16, bf16, f64, i32, i64, u8, bool".
std::string DTypeNames();
std::string LowerCase(std::string text);

}  // namespace rlk::cli
