// Forward for few rows, where latency counts and not bandwidth: a thread takes one accumulator or
// two, and everything is loaded before the first use.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/ops/rms_norm/forward.cuh"

namespace rlk::rms_norm {

inline constexpr int kFewColumns = 8;  // of a thread, at most

// The columns of one accumulator: threadIdx.x + i blockDim.x. Beyond the row's end it holds the
// last column, which is not used.
template <typename X, Convention kConvention, int kColumns>
struct FewColumns {
  int column[kColumns];
  bool inside[kColumns];
  float x[kColumns], w[kColumns], z[kColumns];

  __device__ __forceinline__ void Load(const ForwardPointers& p, const Scalars& s, int64_t base) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int at = i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
      inside[i] = at < s.length;
      column[i] = min(at, s.length - 1);
      x[i] = LoadElement<X>(p.x, base + column[i], false);
      z[i] = IsGated(kConvention) ? LoadElement<X>(p.gate, base + column[i], false) : 0.0f;
    }
    if (std::is_same_v<X, float> || s.weight_is_f32) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) w[i] = static_cast<const float*>(p.weight)[column[i]];
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        w[i] = device::ToFloat(static_cast<const X*>(p.weight)[column[i]]);
      }
    }
  }

  __device__ __forceinline__ float SumOfSquares() const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum = inside[i] ? arith::Fma(x[i], x[i], sum) : sum;
    return sum;
  }
};

// Contiguous, any alignment, length at most kColumns W. A block of W accumulators, 32 to 1,024, a
// row. Grid: rows.
template <typename X, Convention kConvention, int kColumns>
__global__ void __launch_bounds__(1024) ForwardFewKernel(const ForwardPointers p, const Scalars s) {
  __shared__ float shared[32];
  const int64_t base = int64_t{blockIdx.x} * s.length;
  FewColumns<X, kConvention, kColumns> columns;
  columns.Load(p, s, base);
  const float sum =
      FoldWarps(FoldLanes<32>(columns.SumOfSquares()), static_cast<int>(blockDim.x) / 32, shared);
  const float r = RowStatistic(arith::Add(sum, 0.0f), static_cast<float>(s.length), s.eps);
  if (p.rstd != nullptr && threadIdx.x == 0) p.rstd[blockIdx.x] = arith::Canonical(r);
  if (p.y == nullptr) return;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (!columns.inside[i]) continue;
    static_cast<X*>(p.y)[base + columns.column[i]] =
        device::FromFloat<X>(Forward<kConvention, FormulaType<X>>(
            columns.x[i], r, EffectiveWeight<kConvention>(columns.w[i], s), columns.z[i],
            s.activation(), s.round_weighted));
  }
}

// The same with two neighbouring accumulators a thread: half the instructions between the first
// load and the last store, and half the warps that meet. Contiguous, 16-byte aligned, length a
// multiple of 8 and at most kFewColumns W; W is the weight's type. A block of kThreads = W / 2 a
// row. Grid: rows.
template <typename X, typename W, Convention kConvention, int kThreads, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    ForwardPairsKernel(const ForwardPointers p, const Scalars s) {
  constexpr bool kGated = IsGated(kConvention);
  __shared__ float shared[kThreads / 32];
  const int64_t base = int64_t{blockIdx.x} * s.length;
  const int first = static_cast<int>(threadIdx.x) * 2;
  const auto inside = [&](int i) { return kWhole || first + i * 2 * kThreads < s.length; };
  // Beyond the row's end the last pair, which is not used: no load waits for a comparison.
  const auto column = [&](int i) {
    const int at = first + i * 2 * kThreads;
    return kWhole ? at : min(at, s.length - 2);
  };
  device::Vector<X, 2> x[kFewColumns], gate[kGated ? kFewColumns : 1];
  device::Vector<W, 2> weight[kFewColumns];
#pragma unroll
  for (int i = 0; i < kFewColumns; ++i) {
    x[i].Load(static_cast<const X*>(p.x) + base + column(i));
    if constexpr (kGated) gate[i].Load(static_cast<const X*>(p.gate) + base + column(i));
  }
#pragma unroll
  for (int i = 0; i < kFewColumns; ++i) {
    weight[i].Load(static_cast<const W*>(p.weight) + column(i));
  }
  float accumulators[2] = {};
#pragma unroll
  for (int i = 0; i < kFewColumns; ++i) {
    float xs[2];
    x[i].ToFloats(xs);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      accumulators[e] = inside(i) ? arith::Fma(xs[e], xs[e], accumulators[e]) : accumulators[e];
    }
  }
  const float sum =
      FoldWarps(FoldLanes<32>(arith::Add(accumulators[0], accumulators[1])), kThreads / 32, shared);
  const float r = RowStatistic(arith::Add(sum, 0.0f), static_cast<float>(s.length), s.eps);
  if (p.rstd != nullptr && threadIdx.x == 0) p.rstd[blockIdx.x] = arith::Canonical(r);
  if (p.y == nullptr) return;
#pragma unroll
  for (int i = 0; i < kFewColumns; ++i) {
    if (!inside(i)) continue;
    float xs[2], ws[2], zs[2] = {}, y[2];
    x[i].ToFloats(xs);
    weight[i].ToFloats(ws);
    if constexpr (kGated) gate[i].ToFloats(zs);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      y[e] = Forward<kConvention, FormulaType<X>>(xs[e], r, EffectiveWeight<kConvention>(ws[e], s),
                                                  zs[e], s.activation(), s.round_weighted);
    }
    device::Vector<X, 2> result;
    result.FromFloats(y);
    result.Store(static_cast<X*>(p.y) + base + column(i));
  }
}

}  // namespace rlk::rms_norm
