// Device code shared by the RMSNorm kernels: one row over the threads that hold its accumulators.
//
// rowsum-v1 has W accumulators. Thread t holds 8t .. 8t+7 and the vectors of 8 elements at columns
// v W + 8t, so a row takes W / 8 threads; levels 1, 2, 4 of the fold are register adds, 8 .. 128
// are xor butterflies of a warp (every lane gets the same bits, because an IEEE add commutes), and
// the rest goes over shared memory in the same order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/arith/row_sum.h"
#include "kernels/device/strided.cuh"
#include "kernels/device/vector_access.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/ops/rms_norm/formula.h"

namespace rlk::rms_norm {

inline constexpr int kGroup = 8;

// The casts of formula.h, by the hardware's conversions, which give the same bits.
template <typename X>
struct FormulaType {
  __device__ __forceinline__ static float Round(float x) {
    return device::ToFloat(device::FromFloat<X>(x));
  }
};

RLK_HD constexpr bool IsGated(Convention convention) {
  return convention == Convention::kGated || convention == Convention::kGatedHf;
}

// Threads of a block that gives `lanes` threads to a row.
RLK_HD constexpr int BlockThreads(int lanes) { return lanes < 128 ? 128 : lanes; }

// What a kernel needs of the problem besides pointers.
struct Scalars {
  int64_t rows;
  int length;  // H
  float eps;
  float weight_offset;
  bool weight_is_f32;  // else x's dtype
  bool grad_y_is_f32;
  bool sigmoid;
  bool round_weighted;

  __device__ __forceinline__ Activation activation() const {
    return sigmoid ? Activation::kSigmoid : Activation::kSilu;
  }
};

// Levels 1, 2 and 4 of the fold.
__device__ __forceinline__ float FoldGroup(const float (&a)[kGroup]) {
  using arith::Add;
  return Add(Add(Add(a[0], a[1]), Add(a[2], a[3])), Add(Add(a[4], a[5]), Add(a[6], a[7])));
}

template <int kLanes>
__device__ __forceinline__ float FoldLanes(float sum) {
#pragma unroll
  for (int lanes = 1; lanes < (kLanes < 32 ? kLanes : 32); lanes *= 2) {
    sum = arith::Add(sum, __shfl_xor_sync(device::kWholeWarp, sum, lanes));
  }
  return sum;
}

// `warps` is a power of two. `shared` has a float for each; two calls in a row need different ones.
__device__ __forceinline__ float FoldWarps(float sum, int warps, float* shared) {
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = shared[threadIdx.x & static_cast<unsigned>(warps - 1)];
  for (int lanes = 1; lanes < warps; lanes *= 2) {
    sum = arith::Add(sum, __shfl_xor_sync(device::kWholeWarp, sum, lanes));
  }
  return sum;
}

// Folds the 8 accumulators of each of kLanes threads. `shared` has kLanes / 32 floats, for rows of
// more than a warp.
template <int kLanes>
__device__ __forceinline__ float FoldAccumulators(const float (&a)[kGroup], float* shared) {
  float sum = FoldLanes<kLanes>(FoldGroup(a));
  if constexpr (kLanes > 32) sum = FoldWarps(sum, kLanes / 32, shared);
  return arith::Add(sum, 0.0f);
}

// The same for a whole block of 32, 128 or 512 threads.
inline constexpr int kElementWarpsMax = 16;
__device__ __forceinline__ float FoldBlock(const float (&a)[kGroup], float* shared) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  return arith::Add(FoldWarps(FoldLanes<32>(FoldGroup(a)), warps, shared), 0.0f);
}

// The 8 accumulators of a thread of an element kernel: columns 8t + e, + W, + 2W, ..; `product`
// gives the two factors of a column.
template <typename Product>
__device__ __forceinline__ void AccumulateElements(int length, const Product& product,
                                                   float (&accumulators)[kGroup]) {
  const int width = arith::RowSumWidth(length);
#pragma unroll 1
  for (int e = 0; e < kGroup; ++e) {
    const int first = static_cast<int>(threadIdx.x) * kGroup + e;
    float accumulator = 0.0f;
    for (int column = first; first < width && column < length; column += width) {
      const float2 factors = product(column);
      accumulator = arith::Fma(factors.x, factors.y, accumulator);
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i == e) accumulators[i] = accumulator;
    }
  }
}

// 8 elements of a tensor that is F32 or X, as FP32. `p` is the base, `index` a multiple of 8.
template <typename X>
__device__ __forceinline__ void LoadGroup(const void* p, int64_t index, bool is_f32,
                                          float (&out)[kGroup]) {
  if (std::is_same_v<X, float> || is_f32) {
    device::Vector<float, kGroup> v;
    v.Load(static_cast<const float*>(p) + index);
    v.ToFloats(out);
  } else {
    device::Vector<X, kGroup> v;
    v.Load(static_cast<const X*>(p) + index);
    v.ToFloats(out);
  }
}

template <typename X>
__device__ __forceinline__ float LoadElement(const void* p, int64_t index, bool is_f32) {
  if (std::is_same_v<X, float> || is_f32) return static_cast<const float*>(p)[index];
  return device::ToFloat(static_cast<const X*>(p)[index]);
}

template <Convention kConvention>
__device__ __forceinline__ float EffectiveWeight(float w, const Scalars& s) {
  constexpr bool kHasOffset =
      kConvention == Convention::kPlain || kConvention == Convention::kGated;
  return kHasOffset ? OffsetWeight(w, s.weight_offset) : w;
}

}  // namespace rlk::rms_norm
