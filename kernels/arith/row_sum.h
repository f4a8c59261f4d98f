// Row sum `rowsum-v1`: W parallel accumulators, then a pairwise fold. W depends on the row's length
// alone, so a row's bits depend on that row alone, on any device and any grid.
//
//   A[j] = +0 for j < W
//   for i = 0 .. ceil(H/W)-1:  A[j] = fma(a[iW+j], b[iW+j], A[j])     (a = b = +0 beyond H)
//   for s = 1, 2, 4, .. W/2:   A[j] = add(A[j], A[j+s])               for j a multiple of 2s
//   rowsum = add(A[0], +0)
#pragma once

#include <cstdint>

#include "kernels/arith/scalar.h"

namespace rlk::arith {

inline constexpr int64_t kRowSumLengthMax = 65536;
inline constexpr int kRowSumWidthMax = 4096;

// W for rows of `length` elements, 1 <= length <= kRowSumLengthMax.
RLK_HD constexpr int RowSumWidth(int64_t length) {
  if (length > 8192) return 4096;
  if (length > 2048) return 1024;
  if (length > 256) return 256;
  int width = 8;
  while (width < length) width *= 2;
  return width;
}

#if !defined(__CUDACC__)
// On the host. `accumulators` has room for kRowSumWidthMax floats. A product beyond the end would
// add +0 to an accumulator, which can only turn -0 into +0, and the final +0 does that too.
static inline float RowSum(const float* __restrict a, const float* __restrict b, int64_t length,
                           float* __restrict accumulators) {
  const int width = RowSumWidth(length);
  for (int j = 0; j < width; ++j) accumulators[j] = 0.0f;
  int64_t begin = 0;
  for (; begin + width <= length; begin += width) {
    for (int j = 0; j < width; ++j) {
      accumulators[j] = Fma(a[begin + j], b[begin + j], accumulators[j]);
    }
  }
  const int rest = static_cast<int>(length - begin);
  for (int j = 0; j < rest; ++j) {
    accumulators[j] = Fma(a[begin + j], b[begin + j], accumulators[j]);
  }
  // Neighbours are added and moved together: level s of the definition in a shrinking array.
  for (int count = width / 2; count >= 1; count /= 2) {
    for (int j = 0; j < count; ++j) {
      accumulators[j] = Add(accumulators[2 * j], accumulators[2 * j + 1]);
    }
  }
  return Add(accumulators[0], 0.0f);
}
#endif

}  // namespace rlk::arith
