// The parts of a reduction under bf16-k128-v1.
#pragma once

#include <cstdint>

#include "kernels/arith/scalar.h"

namespace rlk::linear {

// (p0 + p1) + (p2 + p3), or p0 + p1, or p0, of one element. partial: [parts][elements].
__device__ __forceinline__ float FoldParts(const float* partial, int64_t elements, int64_t element,
                                           int64_t parts) {
  const float* const p = partial + element;
  float sum = p[0];
  if (parts > 1) sum = arith::Add(sum, p[elements]);
  if (parts == 4) sum = arith::Add(sum, arith::Add(p[2 * elements], p[3 * elements]));
  return sum;
}

}  // namespace rlk::linear
