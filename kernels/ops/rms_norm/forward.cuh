// Forward kernels of the RMSNorm family.
#pragma once

#include <cstdint>

#include "kernels/ops/rms_norm/row.cuh"

namespace rlk::rms_norm {

struct ForwardPointers {
  const void* x;       // [rows, length], X
  const void* weight;  // [length], X or F32
  const void* gate;    // [rows, length], X; null without a gate
  void* y;             // [rows, length], X; null when not wanted
  float* rstd;         // [rows]; null when not wanted
};

// Blocks of ForwardKernel that must fit on a multiprocessor, 0 where the compiler chooses. With a
// warp a row of 16-bit elements without a gate it would choose nine and spill, 5 % of the time.
template <typename X, Convention kConvention, int kLanes>
constexpr int ForwardBlocks() {
  return sizeof(X) == 2 && !IsGated(kConvention) && kLanes == 32 ? 8 : 0;
}

// Contiguous, 16-byte aligned, length a multiple of 8 and at most 8 kLanes kVectors. One pass: the
// row stays in registers. Grid: ceil(rows kLanes / BlockThreads).
template <typename X, Convention kConvention, int kLanes, int kVectors>
__global__ void __launch_bounds__(BlockThreads(kLanes), ForwardBlocks<X, kConvention, kLanes>())
    ForwardKernel(const ForwardPointers p, const Scalars s) {
  __shared__ float shared[kLanes > 32 ? kLanes / 32 : 1];
  constexpr int kRowsPerBlock = BlockThreads(kLanes) / kLanes;
  constexpr int kWidth = kLanes * kGroup;
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kLanes;
  const bool in_range = row < s.rows;
  const int64_t base = row * s.length;
  device::Vector<X, kGroup> x[kVectors];
  device::Vector<X, kGroup> gate[IsGated(kConvention) ? kVectors : 1];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = v * kWidth + lane * kGroup;
    if (in_range && column < s.length) {
      x[v].Load(static_cast<const X*>(p.x) + base + column);
      if constexpr (IsGated(kConvention)) {
        gate[v].Load(static_cast<const X*>(p.gate) + base + column);
      }
    } else {
#pragma unroll
      for (int i = 0; i < device::Vector<X, kGroup>::kRegisters; ++i) x[v].registers[i] = 0;
    }
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
  const float r = RowStatistic(FoldAccumulators<kLanes>(accumulators, shared),
                               static_cast<float>(s.length), s.eps);
  if (!in_range) return;
  if (p.rstd != nullptr && lane == 0) p.rstd[row] = arith::Canonical(r);
  if (p.y == nullptr) return;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = v * kWidth + lane * kGroup;
    if (column >= s.length) continue;
    float values[kGroup], w[kGroup], z[kGroup], y[kGroup];
    x[v].ToFloats(values);
    LoadGroup<X>(p.weight, column, s.weight_is_f32, w);
    if constexpr (IsGated(kConvention)) gate[v].ToFloats(z);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      y[e] = Forward<kConvention, FormulaType<X>>(
          values[e], r, EffectiveWeight<kConvention>(w[e], s), IsGated(kConvention) ? z[e] : 0.0f,
          s.activation(), s.round_weighted);
    }
    device::Vector<X, kGroup> result;
    result.FromFloats(y);
    result.Store(static_cast<X*>(p.y) + base + column);
  }
}

// Any strides, alignment and length: a block of W / 8 threads, at least 32, for a row, which is
// read twice.
template <typename X, Convention kConvention>
__global__ void __launch_bounds__(32 * kElementWarpsMax)
    ForwardElementsKernel(const ForwardPointers p, const Scalars s,
                          const device::StridedIndex x_index, const device::StridedIndex gate_index,
                          const device::StridedIndex weight_index) {
  __shared__ float shared[kElementWarpsMax];
  const int64_t base = int64_t{blockIdx.x} * s.length;
  float accumulators[kGroup] = {};
  AccumulateElements(
      s.length,
      [&](int column) {
        const float value = LoadElement<X>(p.x, x_index.Offset(base + column), false);
        return make_float2(value, value);
      },
      accumulators);
  const float r =
      RowStatistic(FoldBlock(accumulators, shared), static_cast<float>(s.length), s.eps);
  if (p.rstd != nullptr && threadIdx.x == 0) p.rstd[blockIdx.x] = arith::Canonical(r);
  if (p.y == nullptr) return;
  for (int column = threadIdx.x; column < s.length; column += static_cast<int>(blockDim.x)) {
    const float value = LoadElement<X>(p.x, x_index.Offset(base + column), false);
    const float w = LoadElement<X>(p.weight, weight_index.Offset(column), s.weight_is_f32);
    const float z = IsGated(kConvention)
                        ? LoadElement<X>(p.gate, gate_index.Offset(base + column), false)
                        : 0.0f;
    static_cast<X*>(p.y)[base + column] = device::FromFloat<X>(Forward<kConvention, FormulaType<X>>(
        value, r, EffectiveWeight<kConvention>(w, s), z, s.activation(), s.round_weighted));
  }
}

}  // namespace rlk::rms_norm
