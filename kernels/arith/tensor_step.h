// One BF16 tensor-core step of compute capability 9.0, the law `t25x16`, as integer code with the
// same bits on host and device: D = c + the sum of sixteen products, aligned to the largest
// exponent, cut to 25 fractional bits, added exactly and cut to FP32.
//
// kernels/arith/README.md states the law. tests/gpu holds `mma.sync` and `wgmma` to it.
#pragma once

#include "kernels/arith/scalar.h"

namespace rlk::arith {

// So that the operands stay in registers.
#if defined(__CUDA_ARCH__)
#define RLK_UNROLL _Pragma("unroll")
#else
#define RLK_UNROLL
#endif

inline constexpr int kStepProducts = 16;

// The largest exponent of the terms is bounded below by this.
inline constexpr int32_t kStepExponentMin = -133;
inline constexpr int32_t kStepFractionBits = 25;
// Below every exponent of a term: products of subnormals have -252.
inline constexpr int32_t kStepNoTerm = -100000;

// A finite value is significand * 2^(exponent - 7); the significand of a zero is 0.
struct StepOperand {
  int32_t significand;
  int32_t exponent;
};

RLK_HD StepOperand MakeStepOperand(uint16_t bits) {
  const int32_t field = (bits >> 7) & 0xff;
  return {(bits & 0x7f) | (field != 0 ? 0x80 : 0), (field != 0 ? field : 1) - 127};
}

struct StepProduct {
  int32_t magnitude;  // at most 65,025, not normalised; its unit is 2^(exponent - 14)
  int32_t exponent;
};

RLK_HD StepProduct MakeStepProduct(uint16_t a, uint16_t b) {
  const StepOperand x = MakeStepOperand(a);
  const StepOperand y = MakeStepOperand(b);
  return {x.significand * y.significand, x.exponent + y.exponent};
}

// What NaN and infinite terms make of a step, if there are any.
struct StepSpecials {
  bool nan = false, plus = false, minus = false;
};

RLK_HD void AddSpecialProduct(uint16_t a, uint16_t b, StepSpecials& specials) {
  const uint32_t x = a & 0x7fffu, y = b & 0x7fffu;
  constexpr uint32_t kInfinity = 0x7f80u;
  if (x < kInfinity && y < kInfinity) return;
  if (x > kInfinity || y > kInfinity || x == 0 || y == 0) {
    specials.nan = true;
  } else if (((a ^ b) & 0x8000) != 0) {
    specials.minus = true;
  } else {
    specials.plus = true;
  }
}

// magnitude * 2^-shift, cut toward zero.
RLK_HD int64_t CutShift(int64_t magnitude, int32_t shift) {
  return shift > 62 ? 0 : magnitude >> shift;
}

// The place of the highest one, 0 for 1; x > 0.
RLK_HD int32_t HighestOne(uint64_t x) {
#if defined(__CUDA_ARCH__)
  return 63 - __clzll(static_cast<int64_t>(x));
#else
  return 63 - __builtin_clzll(x);
#endif
}

// Bits of sum * 2^(exponent - 25), cut toward zero to FP32; +0 if nothing is left.
RLK_HD uint32_t CutStepSum(int64_t sum, int32_t exponent) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int32_t unit = exponent - kStepFractionBits;  // the exponent of one in `magnitude`
  const int32_t high = HighestOne(magnitude);
  if (unit + high > 127) return sign | 0x7f800000u;
  // The exponent of the last place that is kept.
  const int32_t place = unit + high - 23 > -149 ? unit + high - 23 : -149;
  const uint64_t kept =
      place >= unit ? static_cast<uint64_t>(CutShift(static_cast<int64_t>(magnitude), place - unit))
                    : magnitude << (unit - place);
  if (kept == 0) return 0;
  if (kept < uint64_t{1} << 23) return sign | static_cast<uint32_t>(kept);  // subnormal
  const auto field = static_cast<uint32_t>(place + 23 + 127);
  return sign | field << 23 | (static_cast<uint32_t>(kept) & 0x7fffffu);
}

// Bits of one step. a, b: [kStepProducts] BF16 bits, in any order of the pairs; c: FP32 bits.
RLK_HD uint32_t TensorStep(const uint16_t* a, const uint16_t* b, uint32_t c) {
  StepSpecials specials;
  int32_t top = kStepNoTerm;
  RLK_UNROLL
  for (int i = 0; i < kStepProducts; ++i) {
    AddSpecialProduct(a[i], b[i], specials);
    const StepProduct product = MakeStepProduct(a[i], b[i]);
    if (product.magnitude != 0 && product.exponent > top) top = product.exponent;
  }
  const int32_t c_field = static_cast<int32_t>(c >> 23) & 0xff;
  const int64_t c_magnitude = (c & 0x7fffffu) | (c_field != 0 ? 0x800000u : 0u);
  const int32_t c_exponent = (c_field != 0 ? c_field : 1) - 127;
  if (c_field == 0xff) {
    specials.nan = specials.nan || (c & 0x7fffffu) != 0;
    specials.plus = specials.plus || c >> 31 == 0;
    specials.minus = specials.minus || c >> 31 != 0;
  } else if (c_magnitude != 0 && c_exponent > top) {
    top = c_exponent;
  }
  if (specials.nan || (specials.plus && specials.minus)) return kNanF32;
  if (specials.plus) return 0x7f800000u;
  if (specials.minus) return 0xff800000u;
  if (top == kStepNoTerm) return 0;
  if (top < kStepExponentMin) top = kStepExponentMin;

  const int64_t c_term = c_magnitude == 0 ? 0 : CutShift(c_magnitude << 2, top - c_exponent);
  int64_t sum = c >> 31 != 0 ? -c_term : c_term;
  RLK_UNROLL
  for (int i = 0; i < kStepProducts; ++i) {
    const StepProduct product = MakeStepProduct(a[i], b[i]);
    if (product.magnitude == 0) continue;
    const int64_t term = CutShift(int64_t{product.magnitude} << 11, top - product.exponent);
    sum += ((a[i] ^ b[i]) & 0x8000) != 0 ? -term : term;
  }
  return CutStepSum(sum, top);
}

#undef RLK_UNROLL

}  // namespace rlk::arith
