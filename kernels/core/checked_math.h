// Products and sums of sizes that came from outside: nothing is computed from an overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace rlk {

inline std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// Product of sizes that are not negative. A zero makes the product 0 whatever the others are.
inline std::optional<int64_t> CheckedProduct(std::span<const int64_t> sizes) {
  for (int64_t size : sizes) {
    if (size == 0) return 0;
  }
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (__builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return product;
}

}  // namespace rlk
