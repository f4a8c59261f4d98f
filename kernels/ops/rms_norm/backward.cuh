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

// A thread's part of one row: the vectors at columns v kWidth + 8 lane.
template <typename X, Convention kConvention, int kLanes, int kVectors>
struct RowPart {
  static constexpr bool kGated = IsGated(kConvention);
  static constexpr int kWidth = kLanes * kGroup;
  // Registers hold the raw words of x and an X-typed grad_y, unless that takes too many of them:
  // then everything is read again for each pass, from the caches. An F32 grad_y always is.
  static constexpr bool kReload = (kGated || sizeof(X) == 4) && kVectors > 1;
  static constexpr int kHeld = kReload ? 1 : kVectors;
  static constexpr int kUnroll = kReload ? 1 : kVectors;

  const BackwardPointers& p;
  const Scalars& s;
  int lane;
  int64_t base;  // of the row
  bool in_range;
  device::Vector<X, kGroup> x[kHeld], dy[kHeld], gate[kGated ? kHeld : 1];

  __device__ __forceinline__ int Column(int v) const { return v * kWidth + lane * kGroup; }
  __device__ __forceinline__ bool Inside(int v) const { return in_range && Column(v) < s.length; }
  __device__ __forceinline__ bool HoldsGradY() const {
    return std::is_same_v<X, float> || !s.grad_y_is_f32;
  }

  __device__ __forceinline__ void Load(int v) {
    const int held = kReload ? 0 : v;
#pragma unroll
    for (int i = 0; i < device::Vector<X, kGroup>::kRegisters; ++i) {
      x[held].registers[i] = 0;
      dy[held].registers[i] = 0;
      if constexpr (kGated) gate[held].registers[i] = 0;
    }
    if (!Inside(v)) return;
    const int64_t at = base + Column(v);
    x[held].Load(static_cast<const X*>(p.x) + at);
    if (HoldsGradY()) dy[held].Load(static_cast<const X*>(p.grad_y) + at);
    if constexpr (kGated) gate[held].Load(static_cast<const X*>(p.gate) + at);
  }

  __device__ __forceinline__ float Statistic(float* shared) {
    float accumulators[kGroup] = {};
#pragma unroll kUnroll
    for (int v = 0; v < kVectors; ++v) {
      float values[kGroup];
      if constexpr (kReload) Load(v);
      x[kReload ? 0 : v].ToFloats(values);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        accumulators[e] = arith::Fma(values[e], values[e], accumulators[e]);
      }
    }
    return RowStatistic(FoldAccumulators<kLanes>(accumulators, shared),
                        static_cast<float>(s.length), s.eps);
  }

  __device__ __forceinline__ void TermsOf(int v, float r, Terms (&terms)[kGroup]) {
    const int held = kReload ? 0 : v;
    const bool inside = Inside(v);
    if constexpr (kReload) Load(v);
    float xs[kGroup], ws[kGroup] = {}, gs[kGroup] = {}, zs[kGroup] = {};
    x[held].ToFloats(xs);
    if (inside) LoadGroup<X>(p.weight, Column(v), s.weight_is_f32, ws);
    if (HoldsGradY()) {
      dy[held].ToFloats(gs);
    } else if (inside) {
      LoadGroup<X>(p.grad_y, base + Column(v), true, gs);
    }
    if constexpr (kGated) gate[held].ToFloats(zs);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      // Beyond the row's end both factors of the dot are +0, as the contract has it.
      terms[e] = Terms{};
      if (!inside) continue;
      terms[e] =
          Backward<kConvention, FormulaType<X>>(xs[e], r, EffectiveWeight<kConvention>(ws[e], s),
                                                gs[e], zs[e], s.activation(), s.round_weighted);
    }
  }

  // rowsum(g, xh).
  __device__ __forceinline__ float Dot(float r, float* shared) {
    float accumulators[kGroup] = {};
#pragma unroll kUnroll
    for (int v = 0; v < kVectors; ++v) {
      Terms terms[kGroup];
      TermsOf(v, r, terms);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        accumulators[e] = arith::Fma(terms[e].g, terms[e].xh, accumulators[e]);
      }
    }
    return FoldAccumulators<kLanes>(accumulators, shared);
  }

  __device__ __forceinline__ void Store(int v, float r, float k) {
    Terms terms[kGroup];
    TermsOf(v, r, terms);
    float out[kGroup];
    device::Vector<X, kGroup> result;
    if (p.grad_x != nullptr) {
#pragma unroll
      for (int e = 0; e < kGroup; ++e) out[e] = GradX(terms[e], r, k);
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_x) + base + Column(v));
    }
    if constexpr (kGated) {
      if (p.grad_gate == nullptr) return;
#pragma unroll
      for (int e = 0; e < kGroup; ++e) out[e] = terms[e].grad_gate;
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_gate) + base + Column(v));
    }
  }
};

// Contiguous, 16-byte aligned, length a multiple of 8 and at most 8 kLanes kVectors.
template <typename X, Convention kConvention, int kLanes, int kVectors>
__global__ void __launch_bounds__(BlockThreads(kLanes))
    BackwardRowsKernel(const BackwardPointers p, const Scalars s) {
  __shared__ float shared[2][kLanes > 32 ? kLanes / 32 : 1];
  using Part = RowPart<X, kConvention, kLanes, kVectors>;
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * (BlockThreads(kLanes) / kLanes) + threadIdx.x / kLanes;
  Part part{p, s, lane, row * s.length, row < s.rows};
  if constexpr (!Part::kReload) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) part.Load(v);
  }
  float r;
  if (p.rstd_in != nullptr) {
    r = part.in_range ? p.rstd_in[row] : 0.0f;
  } else {
    r = part.Statistic(shared[0]);
  }
  if (part.in_range && lane == 0) p.rstd[row] = r;
  if (p.grad_x == nullptr && p.grad_gate == nullptr) return;
  const float k = arith::Div(part.Dot(r, shared[1]), static_cast<float>(s.length));
#pragma unroll Part::kUnroll
  for (int v = 0; v < kVectors; ++v) {
    if (part.Inside(v)) part.Store(v, r, k);
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
