// Rows of at most 256 elements: a row takes half a warp or a whole one, a thread one vector of 8
// columns of several rows. What a row needs once (its statistic) is computed by one lane for one
// row each, not by all lanes for all rows.
#pragma once

#include <cstdint>

#include "kernels/ops/rms_norm/forward.cuh"

namespace rlk::rms_norm {

// Folds kRows sums (2 or 4) over kLanes lanes; lane l gets the total of row RowOfLane(l). The first
// steps halve the rows that a lane carries. An IEEE add commutes, so the bits are the butterfly's.
template <int kLanes, int kRows>
struct RowPerLane {
  static_assert(kRows == 2 || kRows == 4);

  __device__ __forceinline__ static int RowOfLane(int lane) {
    return kRows == 4 ? (lane & 1) * 2 + (lane >> 1 & 1) : lane & 1;
  }

  __device__ __forceinline__ static float Fold(float (&sums)[kRows], int lane) {
    using arith::Add;
#pragma unroll
    for (int half = kRows / 2, step = 1; half >= 1; half /= 2, step *= 2) {
      const bool upper = (lane & step) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float sent = upper ? sums[i] : sums[i + half];
        const float kept = upper ? sums[i + half] : sums[i];
        sums[i] = Add(kept, __shfl_xor_sync(device::kWholeWarp, sent, step));
      }
    }
#pragma unroll
    for (int step = kRows; step < kLanes; step *= 2) {
      sums[0] = Add(sums[0], __shfl_xor_sync(device::kWholeWarp, sums[0], step));
    }
    return Add(sums[0], 0.0f);
  }

  // Every row's value from the lane that has it.
  __device__ __forceinline__ static void Spread(float value, float (&out)[kRows]) {
    const int group = static_cast<int>(threadIdx.x) % 32 / kLanes * kLanes;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int lane = kRows == 4 ? (i >> 1) + (i & 1) * 2 : i;
      out[i] = __shfl_sync(device::kWholeWarp, value, group + lane);
    }
  }
};

// A thread's rows: first + i kGroups.
template <int kLanes, int kThreads>
struct NarrowPlace {
  static constexpr int kGroups = kThreads / kLanes;
  int lane;
  int64_t first;
  __device__ __forceinline__ explicit NarrowPlace(int64_t block_row)
      : lane(static_cast<int>(threadIdx.x) % kLanes),
        first(block_row + static_cast<int>(threadIdx.x) / kLanes) {}
  __device__ __forceinline__ int column() const { return lane * kGroup; }
  __device__ __forceinline__ int64_t row(int i) const { return first + i * kGroups; }
};

// The weight with its offset, 0 beyond the row's end.
template <typename X, Convention kConvention>
__device__ __forceinline__ void LoadWeights(const void* weight, int column, const Scalars& s,
                                            float (&w)[kGroup]) {
#pragma unroll
  for (int e = 0; e < kGroup; ++e) w[e] = 0.0f;
  if (column >= s.length) return;
  LoadGroup<X>(weight, column, s.weight_is_f32, w);
#pragma unroll
  for (int e = 0; e < kGroup; ++e) w[e] = EffectiveWeight<kConvention>(w[e], s);
}

template <typename X>
__device__ __forceinline__ float SumOfSquares(const device::Vector<X, kGroup>& x) {
  float values[kGroup], squares[kGroup];
  x.ToFloats(values);
#pragma unroll
  for (int e = 0; e < kGroup; ++e) squares[e] = arith::Fma(values[e], values[e], 0.0f);
  return FoldGroup(squares);
}

inline constexpr int kNarrowForwardRows = 4;
inline constexpr int kNarrowForwardThreads = 128;

// Contiguous, 16-byte aligned, length a multiple of 8 and at most 8 kLanes. Grid: ceil(rows /
// (kNarrowForwardRows kNarrowForwardThreads / kLanes)).
template <typename X, Convention kConvention, int kLanes>
__global__ void __launch_bounds__(kNarrowForwardThreads)
    ForwardNarrowKernel(const ForwardPointers p, const Scalars s) {
  constexpr int kRows = kNarrowForwardRows;
  constexpr bool kGated = IsGated(kConvention);
  using Place = NarrowPlace<kLanes, kNarrowForwardThreads>;
  using PerLane = RowPerLane<kLanes, kRows>;
  const Place place(int64_t{blockIdx.x} * Place::kGroups * kRows);
  const bool inside = place.column() < s.length;
  device::Vector<X, kGroup> x[kRows], gate[kGated ? kRows : 1];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    x[i].Clear();
    if (!inside || place.row(i) >= s.rows) continue;
    const int64_t at = place.row(i) * s.length + place.column();
    x[i].Load(static_cast<const X*>(p.x) + at);
    if constexpr (kGated) gate[i].Load(static_cast<const X*>(p.gate) + at);
  }
  float w[kGroup], sums[kRows], r[kRows];
  LoadWeights<X, kConvention>(p.weight, place.column(), s, w);
#pragma unroll
  for (int i = 0; i < kRows; ++i) sums[i] = SumOfSquares(x[i]);
  const float own =
      RowStatistic(PerLane::Fold(sums, place.lane), static_cast<float>(s.length), s.eps);
  if (p.rstd != nullptr && place.lane < kRows) {
    const int64_t row = place.row(PerLane::RowOfLane(place.lane));
    if (row < s.rows) p.rstd[row] = arith::Canonical(own);
  }
  if (p.y == nullptr) return;
  PerLane::Spread(own, r);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (!inside || place.row(i) >= s.rows) continue;
    float values[kGroup], z[kGroup] = {}, y[kGroup];
    x[i].ToFloats(values);
    if constexpr (kGated) gate[i].ToFloats(z);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      y[e] = Forward<kConvention, FormulaType<X>>(values[e], r[i], w[e], z[e], s.activation(),
                                                  s.round_weighted);
    }
    device::Vector<X, kGroup> result;
    result.FromFloats(y);
    result.Store(static_cast<X*>(p.y) + place.row(i) * s.length + place.column());
  }
}

}  // namespace rlk::rms_norm
