// Digest of a function over all 2^32 FP32 inputs, the same definition on host and device.
//
// With bits(i) = the canonical result for the input whose bit pattern is i, the digest is the sum
// modulo 2^64 of DigestTerm(i, bits(i)) over i = 0 .. 2^32 - 1: it does not depend on the order, so
// it parallelises and vectorises. For one i, different bits give different terms.
#pragma once

#include "kernels/arith/functions.h"

namespace rlk::arith {

enum class Function : uint8_t {
  kExp = 0,
  kTanh = 1,
  kSigmoid = 2,
  kSilu = 3,
  kRsqrt = 4,
  kLog1p = 5,
  kSin = 6,
  kCos = 7,
};
inline constexpr int kFunctionCount = 8;
inline constexpr const char* kFunctionNames[kFunctionCount] = {"exp",   "tanh",  "sigmoid", "silu",
                                                               "rsqrt", "log1p", "sin",     "cos"};

// The stored 32 bits of the result for the input pattern `i`: NaN as 0x7fffffff; sin and cos above
// |x| = 2^18 (infinities and NaN too), which no caller may ask for, as 0.
template <Function kFunction>
RLK_HD uint32_t FunctionBits(uint32_t i) {
  const float x = BitsFloat(i);
  if constexpr (kFunction == Function::kSin || kFunction == Function::kCos) {
    const bool in_range = (i & 0x7fffffffu) <= 0x48800000u;
    const float inside = in_range ? x : 0.0f;
    const float y = kFunction == Function::kSin ? Sin(inside) : Cos(inside);
    return in_range ? FloatBits(y) : 0u;
  }
  float y = x;
  if constexpr (kFunction == Function::kExp) y = Exp(x);
  if constexpr (kFunction == Function::kTanh) y = Tanh(x);
  if constexpr (kFunction == Function::kSigmoid) y = Sigmoid(x);
  if constexpr (kFunction == Function::kSilu) y = Silu(x);
  if constexpr (kFunction == Function::kRsqrt) y = Rsqrt(x);
  if constexpr (kFunction == Function::kLog1p) y = Log1p(x);
  return FloatBits(Canonical(y));
}

// One term. `a` is a bijection of the bits for a given i; the odd factor `b` spreads it over 64
// bits. 32-bit steps and one widening product: vector units without a 64-bit product do it too.
RLK_HD uint64_t DigestTerm(uint32_t i, uint32_t bits) {
  uint32_t a = bits ^ (i * 0x9e3779b1u);
  a ^= a >> 15;
  a *= 0x85ebca77u;
  a ^= a >> 13;
  uint32_t b = (bits + i * 0xc2b2ae3du) * 0x27d4eb2fu;
  b ^= b >> 16;
  return static_cast<uint64_t>(a) * static_cast<uint64_t>(b | 1u);
}

}  // namespace rlk::arith
