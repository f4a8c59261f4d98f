// Backward kernels of the RMSNorm family. What stays in its row (grad_x, grad_gate, the row
// statistic) is one kernel; the weight gradient walks the rows of its columns in logical order.
#pragma once

#include <cstdint>

#include "kernels/ops/rms_norm/row.cuh"

namespace rlk::rms_norm {

struct BackwardPointers {
  const void* x;         // [rows, length], X
  const void* weight;    // [length], X or F32
  const void* gate;      // [rows, length], X; null without a gate
  const void* grad_y;    // [rows, length], X or F32
  const float* rstd_in;  // [rows]; null: computed here
  float* rstd;           // [rows], workspace, for the weight gradient
  void* grad_x;          // [rows, length], X; null when not wanted
  void* grad_gate;       // [rows, length], X; null when not wanted
};

// Strides of the tensors above, for the element kernels.
struct BackwardIndex {
  device::StridedIndex x, weight, gate, grad_y, rstd_in;
};

// A thread's part of one row: the vectors at columns v kWidth + 8 lane, in registers.
template <typename X, typename G, Convention kConvention, int kLanes, int kVectors>
struct RowPart {
  static constexpr bool kGated = IsGated(kConvention);
  static constexpr int kWidth = kLanes * kGroup;

  const BackwardPointers& p;
  const Scalars& s;
  const float* weight;  // shared, kWidth kVectors, with the offset
  int lane;
  int64_t row;
  device::Vector<X, kGroup> x[kVectors], gate[kGated ? kVectors : 1];
  device::Vector<G, kGroup> dy[kVectors];
  float r;

  __device__ __forceinline__ int Column(int v) const { return v * kWidth + lane * kGroup; }
  __device__ __forceinline__ bool Inside(int v) const {
    return row < s.rows && Column(v) < s.length;
  }

  __device__ __forceinline__ void Load() {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      x[v].Clear();
      dy[v].Clear();
      if constexpr (kGated) gate[v].Clear();
      if (!Inside(v)) continue;
      const int64_t at = row * s.length + Column(v);
      x[v].Load(static_cast<const X*>(p.x) + at);
      dy[v].Load(static_cast<const G*>(p.grad_y) + at);
      if constexpr (kGated) gate[v].Load(static_cast<const X*>(p.gate) + at);
    }
  }

  __device__ __forceinline__ void Statistic(float* shared) {
    if (p.rstd_in != nullptr) {
      r = row < s.rows ? p.rstd_in[row] : 0.0f;
      return;
    }
    float accumulators[kGroup] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float values[kGroup];
      x[v].ToFloats(values);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        accumulators[e] = arith::Fma(values[e], values[e], accumulators[e]);
      }
    }
    r = RowStatistic(FoldAccumulators<kLanes>(accumulators, shared), static_cast<float>(s.length),
                     s.eps);
  }

  __device__ __forceinline__ void TermsOf(int v, Terms (&terms)[kGroup]) const {
    float xs[kGroup], gs[kGroup], zs[kGroup] = {};
    device::Vector<float, kGroup> w;
    x[v].ToFloats(xs);
    dy[v].ToFloats(gs);
    if constexpr (kGated) gate[v].ToFloats(zs);
    w.LoadShared(weight + Column(v));
    float ws[kGroup];
    w.ToFloats(ws);
    // Beyond the row's end everything is 0, and stays so whatever the statistic is.
    const float vector_r = Column(v) < s.length ? r : 0.0f;
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      terms[e] = Backward<kConvention, FormulaType<X>>(xs[e], vector_r, ws[e], gs[e], zs[e],
                                                       s.activation(), s.round_weighted);
    }
  }

  // rowsum(g, xh).
  __device__ __forceinline__ float Dot(float* shared) const {
    float accumulators[kGroup] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      Terms terms[kGroup];
      TermsOf(v, terms);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        accumulators[e] = arith::Fma(terms[e].g, terms[e].xh, accumulators[e]);
      }
    }
    return FoldAccumulators<kLanes>(accumulators, shared);
  }

  __device__ __forceinline__ void Store(int v, float k) const {
    Terms terms[kGroup];
    TermsOf(v, terms);
    const int64_t at = row * s.length + Column(v);
    float out[kGroup];
    device::Vector<X, kGroup> result;
    if (p.grad_x != nullptr) {
#pragma unroll
      for (int e = 0; e < kGroup; ++e) out[e] = GradX(terms[e], r, k);
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_x) + at);
    }
    if constexpr (kGated) {
      if (p.grad_gate == nullptr) return;
#pragma unroll
      for (int e = 0; e < kGroup; ++e) out[e] = terms[e].grad_gate;
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_gate) + at);
    }
  }
};

// Blocks that share a multiprocessor: as many as keep a row of registers in flight without spills.
template <typename X, Convention kConvention, int kLanes, int kVectors>
RLK_HD constexpr int RowsBlocks() {
  const int words = kVectors * static_cast<int>(sizeof(X)) / 2 * (IsGated(kConvention) ? 3 : 2);
  if (words > 24) return 2;
  return words > 16 ? 3 : words > 10 ? 4 : 6;
}

// Contiguous, 16-byte aligned, length a multiple of 8 and at most 8 kLanes kVectors. A block goes
// from row to row. Any grid.
template <typename X, typename G, Convention kConvention, int kLanes, int kVectors>
__global__ void __launch_bounds__(BlockThreads(kLanes),
                                  RowsBlocks<X, kConvention, kLanes, kVectors>())
    BackwardRowsKernel(const BackwardPointers p, const Scalars s) {
  using Part = RowPart<X, G, kConvention, kLanes, kVectors>;
  constexpr int kRows = BlockThreads(kLanes) / kLanes;  // of a block, at once
  __shared__ alignas(16) float weight[Part::kWidth * kVectors];
  __shared__ float shared[2][2][kLanes > 32 ? kLanes / 32 : 1];
  for (int i = threadIdx.x; i < Part::kWidth * kVectors; i += BlockThreads(kLanes)) {
    weight[i] = i < s.length
                    ? EffectiveWeight<kConvention>(LoadElement<X>(p.weight, i, s.weight_is_f32), s)
                    : 0.0f;
  }
  __syncthreads();
  int parity = 0;
  // All threads of a block take as many turns as its first row needs.
  for (int64_t first = int64_t{blockIdx.x} * kRows; first < s.rows;
       first += int64_t{gridDim.x} * kRows, parity ^= 1) {
    Part part{p, s, weight, static_cast<int>(threadIdx.x) % kLanes,
              first + static_cast<int>(threadIdx.x) / kLanes};
    part.Load();
    part.Statistic(shared[parity][0]);
    if (part.row < s.rows && part.lane == 0) p.rstd[part.row] = part.r;
    if (p.grad_x == nullptr && p.grad_gate == nullptr) continue;
    const float k = arith::Div(part.Dot(shared[parity][1]), static_cast<float>(s.length));
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (part.Inside(v)) part.Store(v, k);
    }
  }
}

template <typename X, Convention kConvention>
__device__ __forceinline__ Terms ElementTerms(const BackwardPointers& p, const BackwardIndex& index,
                                              const Scalars& s, int64_t base, int column, float r) {
  const int64_t i = base + column;
  const float z = IsGated(kConvention) ? LoadElement<X>(p.gate, index.gate.Offset(i), false) : 0.0f;
  return Backward<kConvention, FormulaType<X>>(
      LoadElement<X>(p.x, index.x.Offset(i), false), r,
      EffectiveWeight<kConvention>(
          LoadElement<X>(p.weight, index.weight.Offset(column), s.weight_is_f32), s),
      LoadElement<X>(p.grad_y, index.grad_y.Offset(i), s.grad_y_is_f32), z, s.activation(),
      s.round_weighted);
}

// Any strides, alignment and length: a block of W / 8 threads, at least 32, for a row.
template <typename X, Convention kConvention>
__global__ void __launch_bounds__(32 * kElementWarpsMax)
    BackwardRowsElementsKernel(const BackwardPointers p, const Scalars s,
                               const BackwardIndex index) {
  __shared__ float shared[2][kElementWarpsMax];
  const int64_t row = blockIdx.x;
  const int64_t base = row * s.length;
  float accumulators[kGroup] = {};
  float r;
  if (p.rstd_in != nullptr) {
    r = p.rstd_in[index.rstd_in.Offset(row)];
  } else {
    AccumulateElements(
        s.length,
        [&](int column) {
          const float value = LoadElement<X>(p.x, index.x.Offset(base + column), false);
          return make_float2(value, value);
        },
        accumulators);
    r = RowStatistic(FoldBlock(accumulators, shared[0]), static_cast<float>(s.length), s.eps);
  }
  if (threadIdx.x == 0) p.rstd[row] = r;
  if (p.grad_x == nullptr && p.grad_gate == nullptr) return;
  AccumulateElements(
      s.length,
      [&](int column) {
        const Terms terms = ElementTerms<X, kConvention>(p, index, s, base, column, r);
        return make_float2(terms.g, terms.xh);
      },
      accumulators);
  const float k = arith::Div(FoldBlock(accumulators, shared[1]), static_cast<float>(s.length));
  for (int column = threadIdx.x; column < s.length; column += static_cast<int>(blockDim.x)) {
    const Terms terms = ElementTerms<X, kConvention>(p, index, s, base, column, r);
    if (p.grad_x != nullptr) {
      static_cast<X*>(p.grad_x)[base + column] = device::FromFloat<X>(GradX(terms, r, k));
    }
    if (IsGated(kConvention) && p.grad_gate != nullptr) {
      static_cast<X*>(p.grad_gate)[base + column] = device::FromFloat<X>(terms.grad_gate);
    }
  }
}

}  // namespace rlk::rms_norm
