// The exact BF16 parts of an FP32 gradient under bf16-k128-v1.
#pragma once

#include <cstdint>

#include "kernels/linear/bf16_gradient.cuh"

namespace rlk::linear {

inline constexpr int kTermsMax = 3;  // chained a chunk: the gradient alone, or its three parts

// The exact parts of eight FP32 values, as BF16: `part` 0 is the value's own rounding, 1 and 2 that
// of what is left.
__device__ __forceinline__ uint4 PartOf(const float (&g)[8], int part) {
  float out[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float left = g[i], rounded = arith::Bf16ToFloat(device::FromFloat<device::Bf16>(left).bits);
    for (int p = 0; p < part; ++p) {
      left = arith::Sub(left, rounded);
      rounded = arith::Bf16ToFloat(device::FromFloat<device::Bf16>(left).bits);
    }
    out[i] = rounded;
  }
  return Pack8(out);
}

// Term `term` of `terms` is part terms - 1 - term: the smallest comes first.
__device__ __forceinline__ int PartOfTerm(int term, int terms) { return terms - 1 - term; }

}  // namespace rlk::linear
