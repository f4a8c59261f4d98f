// Casts between FP32 and the 16-bit types: one rounding to nearest even, subnormal results kept,
// overflow to infinity, NaN to the canonical 0x7fff. Up-conversions are exact (NaN payloads kept).
#pragma once

#include "kernels/arith/scalar.h"

namespace rlk::arith {

RLK_HD float Bf16ToFloat(uint16_t h) { return BitsFloat(static_cast<uint32_t>(h) << 16); }

RLK_HD uint16_t FloatToBf16(float x) {
  const uint32_t bits = FloatBits(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return x == x ? static_cast<uint16_t>(rounded) : kNan16;
}

RLK_HD float F16ToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  // Normal: rebias by 112. Subnormal: an exact product. Infinity and NaN: the top exponent.
  const float normal = BitsFloat((magnitude << 13) + (112u << 23));
  const float subnormal = Mul(static_cast<float>(magnitude), 0x1p-24f);
  const float special = BitsFloat(0x7f800000u | (magnitude << 13));
  const float value = magnitude >= 0x7c00u ? special : (magnitude < 0x400u ? subnormal : normal);
  return BitsFloat(FloatBits(value) | sign);
}

RLK_HD uint16_t FloatToF16(float x) {
  const uint32_t bits = FloatBits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14: adding 0.5 aligns the last place to 2^-24 and rounds to nearest even.
  const uint32_t subnormal = FloatBits(Add(BitsFloat(magnitude), 0.5f)) - FloatBits(0.5f);
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
  if (magnitude >= 0x477ff000u) result = 0x7c00u;  // 65520 and more
  return x == x ? static_cast<uint16_t>(result | sign) : kNan16;
}

}  // namespace rlk::arith
