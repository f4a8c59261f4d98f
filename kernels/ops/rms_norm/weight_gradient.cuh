// The weight gradient: terms c of rows in logical order, folded as the contract says. A term is
// rounded before it is added, so a row's term is the gradient of that row alone.
#pragma once

#include <cstdint>

#include "kernels/ops/rms_norm/backward.cuh"
#include "kernels/ops/rms_norm/workspace.h"

namespace rlk::rms_norm {

inline constexpr int kFoldRows = 128;  // also the block of chunk128

struct FoldPointers {
  const void* x;       // [rows, length], X
  const void* gate;    // [rows, length], X; null without a gate
  const void* grad_y;  // [rows, length], G
  const float* rstd;   // [rows]
  const float* carry;  // [length]; null: +0
  void* grad_weight;   // [length], X or F32; null when not wanted
  float* accumulator;  // [length]; null when not wanted
  float* partials;     // [ceil(rows / 128), length], chunk128
  float* terms;        // where a left fold stores them (TermBytes)
  uint32_t* ready;     // [ceil(rows / 128)], beside the terms: not 0 where they are there
};

// c of 8 neighbouring columns. The weight does not enter.
template <typename X, typename G, Convention kConvention>
struct TermLoader {
  device::Vector<X, kGroup> x;
  device::Vector<X, kGroup> gate;
  device::Vector<G, kGroup> grad_y;
  float r;

  __device__ __forceinline__ void Load(const FoldPointers& p, const Scalars& s, int64_t row,
                                       int column) {
    const int64_t i = row * s.length + column;
    x.LoadHere(static_cast<const X*>(p.x) + i);
    grad_y.LoadHere(static_cast<const G*>(p.grad_y) + i);
    if constexpr (IsGated(kConvention)) {
      gate.LoadHere(static_cast<const X*>(p.gate) + i);
    }
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(r) : "l"(p.rstd + row));
  }

  __device__ __forceinline__ void Terms(const Scalars& s, float (&c)[kGroup]) const {
    float xs[kGroup], gs[kGroup], zs[kGroup] = {};
    x.ToFloats(xs);
    grad_y.ToFloats(gs);
    if constexpr (IsGated(kConvention)) gate.ToFloats(zs);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      c[e] = Backward<kConvention, FormulaType<X>>(xs[e], r, 0.0f, gs[e], zs[e], s.activation(),
                                                   s.round_weighted)
                 .c;
    }
  }
};

template <typename X>
__device__ __forceinline__ void StoreGradient(const FoldPointers& p, const Scalars& s, int column,
                                              float sum) {
  if (p.accumulator != nullptr) p.accumulator[column] = arith::Canonical(sum);
  if (p.grad_weight == nullptr) return;
  if (std::is_same_v<X, float> || s.weight_is_f32) {
    static_cast<float*>(p.grad_weight)[column] = arith::Canonical(sum);
  } else {
    static_cast<X*>(p.grad_weight)[column] = device::FromFloat<X>(sum);
  }
}

inline constexpr int kChunkThreads = 128;

// chunk128, first step: a thread owns 8 columns of one block of rows. Contiguous, 16-byte aligned,
// length a multiple of 8. Grid: ceil(chunks * length / 8 / kChunkThreads).
template <typename X, typename G, Convention kConvention>
__global__ void __launch_bounds__(kChunkThreads)
    ChunkPartialsKernel(const FoldPointers p, const Scalars s) {
  const int64_t index = int64_t{blockIdx.x} * kChunkThreads + threadIdx.x;
  const int groups = s.length / kGroup;
  const int64_t chunk = index / groups;
  const int column = static_cast<int>(index - chunk * groups) * kGroup;
  const int64_t begin = chunk * kFoldRows;
  if (begin >= s.rows) return;
  const int rows = static_cast<int>(s.rows - begin < kFoldRows ? s.rows - begin : kFoldRows);
  float partial[kGroup] = {};
#pragma unroll 4
  for (int row = 0; row < rows; ++row) {
    TermLoader<X, G, kConvention> loader;
    loader.Load(p, s, begin + row, column);
    float c[kGroup];
    loader.Terms(s, c);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) partial[e] = arith::Add(partial[e], c[e]);
  }
  device::Vector<float, kGroup> result;
  result.FromFloats(partial);
  result.Store(p.partials + chunk * s.length + column);
}

// Any strides, alignment and length, either fold: a thread a column.
template <typename X, Convention kConvention>
__global__ void __launch_bounds__(kChunkThreads)
    FoldElementsKernel(const BackwardPointers b, const BackwardIndex index, const FoldPointers p,
                       const device::StridedIndex carry_index, const Scalars s, bool chunked) {
  const int column = blockIdx.x * kChunkThreads + threadIdx.x;
  if (column >= s.length) return;
  float sum = p.carry != nullptr ? p.carry[carry_index.Offset(column)] : 0.0f;
  float partial = 0.0f;
  for (int64_t row = 0; row < s.rows; ++row) {
    const float c =
        ElementTerms<X, kConvention>(b, index, s, row * s.length, column, p.rstd[row]).c;
    if (!chunked) {
      sum = arith::Add(sum, c);
      continue;
    }
    partial = arith::Add(partial, c);
    if ((row + 1) % kFoldRows == 0 || row + 1 == s.rows) {
      sum = arith::Add(sum, partial);
      partial = 0.0f;
    }
  }
  StoreGradient<X>(p, s, column, sum);
}

}  // namespace rlk::rms_norm
