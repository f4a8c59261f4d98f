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

// Contiguous, 16-byte aligned, length a multiple of 8 and at most 8 kLanes kVectors.
template <typename X, Convention kConvention, int kLanes, int kVectors>
__global__ void __launch_bounds__(BlockThreads(kLanes))
    BackwardRowsKernel(const BackwardPointers p, const Scalars s) {
  __shared__ float shared[2][kLanes > 32 ? kLanes / 32 : 1];
  constexpr int kThreads = BlockThreads(kLanes);
  constexpr int kRowsPerBlock = kThreads / kLanes;
  constexpr int kWidth = kLanes * kGroup;
  constexpr bool kGated = IsGated(kConvention);
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kLanes;
  const bool in_range = row < s.rows;
  const int64_t base = row * s.length;
  // Registers hold the raw words of x and an X-typed grad_y, unless that takes too many of them:
  // then everything is read again for each pass, from the caches. An F32 grad_y always is.
  constexpr bool kReload = (kGated || sizeof(X) == 4) && kVectors > 1;
  constexpr int kHeld = kReload ? 1 : kVectors;
  constexpr int kUnroll = kReload ? 1 : kVectors;
  device::Vector<X, kGroup> x[kHeld], dy[kHeld], gate[kGated ? kHeld : 1];
  const auto load = [&](int v) {
    const int column = v * kWidth + lane * kGroup;
    const bool inside = in_range && column < s.length;
    const int held = kReload ? 0 : v;
#pragma unroll
    for (int i = 0; i < device::Vector<X, kGroup>::kRegisters; ++i) {
      x[held].registers[i] = 0;
      dy[held].registers[i] = 0;
      if constexpr (kGated) gate[held].registers[i] = 0;
    }
    if (!inside) return;
    x[held].Load(static_cast<const X*>(p.x) + base + column);
    if (!s.grad_y_is_f32 || std::is_same_v<X, float>) {
      dy[held].Load(static_cast<const X*>(p.grad_y) + base + column);
    }
    if constexpr (kGated) gate[held].Load(static_cast<const X*>(p.gate) + base + column);
  };
  if constexpr (!kReload) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) load(v);
  }
  float r;
  if (p.rstd_in != nullptr) {
    r = in_range ? p.rstd_in[row] : 0.0f;
  } else {
    float accumulators[kGroup] = {};
#pragma unroll kUnroll
    for (int v = 0; v < kVectors; ++v) {
      float values[kGroup];
      if constexpr (kReload) load(v);
      x[kReload ? 0 : v].ToFloats(values);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        accumulators[e] = arith::Fma(values[e], values[e], accumulators[e]);
      }
    }
    r = RowStatistic(FoldAccumulators<kLanes>(accumulators, shared[0]),
                     static_cast<float>(s.length), s.eps);
  }
  if (in_range && lane == 0) p.rstd[row] = r;
  if (p.grad_x == nullptr && p.grad_gate == nullptr) return;

  const auto terms_of = [&](int v, Terms(&terms)[kGroup]) {
    const int column = v * kWidth + lane * kGroup;
    const bool inside = in_range && column < s.length;
    const int held = kReload ? 0 : v;
    if constexpr (kReload) load(v);
    float xs[kGroup], ws[kGroup] = {}, gs[kGroup] = {}, zs[kGroup] = {};
    x[held].ToFloats(xs);
    if (inside) LoadGroup<X>(p.weight, column, s.weight_is_f32, ws);
    if (!s.grad_y_is_f32 || std::is_same_v<X, float>) {
      dy[held].ToFloats(gs);
    } else if (inside) {
      LoadGroup<X>(p.grad_y, base + column, true, gs);
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
  };
  float accumulators[kGroup] = {};
#pragma unroll kUnroll
  for (int v = 0; v < kVectors; ++v) {
    Terms terms[kGroup];
    terms_of(v, terms);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      accumulators[e] = arith::Fma(terms[e].g, terms[e].xh, accumulators[e]);
    }
  }
  const float k =
      arith::Div(FoldAccumulators<kLanes>(accumulators, shared[1]), static_cast<float>(s.length));
#pragma unroll kUnroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = v * kWidth + lane * kGroup;
    if (!in_range || column >= s.length) continue;
    Terms terms[kGroup];
    terms_of(v, terms);
    float out[kGroup];
    device::Vector<X, kGroup> result;
    if (p.grad_x != nullptr) {
#pragma unroll
      for (int e = 0; e < kGroup; ++e) out[e] = GradX(terms[e], r, k);
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_x) + base + column);
    }
    if constexpr (kGated) {
      if (p.grad_gate == nullptr) continue;
#pragma unroll
      for (int e = 0; e < kGroup; ++e) out[e] = terms[e].grad_gate;
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_gate) + base + column);
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
