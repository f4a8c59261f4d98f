// Reductions over the lanes of a warp. Every lane gets the result. The xor butterfly pairs lanes
// with lanes, so for a commutative operation all lanes hold the same bits.
#pragma once

#include <cstdint>

namespace rlk::device {

inline constexpr unsigned kWholeWarp = 0xffffffffu;

template <typename T, typename Combine>
__device__ __forceinline__ T WarpReduce(T value, Combine combine) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    value = combine(value, __shfl_xor_sync(kWholeWarp, value, lanes));
  }
  return value;
}

template <typename T>
__device__ __forceinline__ T WarpSum(T value) {
  return WarpReduce(value, [](T a, T b) { return a + b; });
}

}  // namespace rlk::device
