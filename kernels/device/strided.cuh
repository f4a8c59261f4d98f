// Where logical element i of a strided tensor lies: dimensions that are walked together are merged
// on the host, the rest is divided out on the device with 64-bit offsets.
#pragma once

#include <cstdint>

#include "kernels/core/tensor_view.h"

namespace rlk::device {

struct StridedIndex {
  int rank = 0;
  int64_t sizes[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};

  __host__ __device__ int64_t Offset(int64_t index) const {
    int64_t offset = 0;
    for (int d = rank - 1; d > 0; --d) {
      const int64_t quotient = index / sizes[d];
      offset += (index - quotient * sizes[d]) * strides[d];
      index = quotient;
    }
    return rank > 0 ? offset + index * strides[0] : 0;
  }
};

inline StridedIndex MakeStridedIndex(const Dims& shape, const Dims& strides) {
  StridedIndex index;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    const int last = index.rank - 1;
    if (last >= 0 && index.strides[last] == shape[d] * strides[d]) {
      index.sizes[last] *= shape[d];
      index.strides[last] = strides[d];
    } else {
      index.sizes[index.rank] = shape[d];
      index.strides[index.rank] = strides[d];
      ++index.rank;
    }
  }
  return index;
}

}  // namespace rlk::device
