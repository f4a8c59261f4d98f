// Backward for rows of at most 256 elements, in one pass: grad_x, grad_gate, and what the weight
// gradient needs: the terms of a left fold, or the partial sums of chunk128.
#pragma once

#include <cstdint>

#include "kernels/device/async_copy.cuh"
#include "kernels/device/published.cuh"
#include "kernels/ops/rms_norm/narrow.cuh"
#include "kernels/ops/rms_norm/weight_gradient.cuh"

namespace rlk::rms_norm {

// What becomes of the terms c of the weight gradient.
enum class NarrowFold : uint8_t { kNone, kStore, kChunk };

inline constexpr int kNarrowThreads = 256;

// The rows of one thread: what it holds from the first load to the last store.
template <typename X, typename G, Convention kConvention, int kLanes, int kRows>
struct NarrowRows {
  static constexpr bool kGated = IsGated(kConvention);
  using Place = NarrowPlace<kLanes, kNarrowThreads>;
  using PerLane = RowPerLane<kLanes, kRows>;

  const BackwardPointers& p;
  const Scalars& s;
  Place place;
  bool inside;
  device::Vector<X, kGroup> x[kRows], gate[kGated ? kRows : 1];
  device::Vector<G, kGroup> dy[kRows];
  float r[kRows], g[kRows][kGroup];

  __device__ __forceinline__ NarrowRows(const BackwardPointers& pointers, const Scalars& scalars,
                                        int64_t block_row)
      : p(pointers), s(scalars), place(block_row), inside(place.column() < scalars.length) {}

  __device__ __forceinline__ bool present(int i) const { return inside && place.row(i) < s.rows; }
  __device__ __forceinline__ int64_t at(int i) const {
    return place.row(i) * s.length + place.column();
  }

  __device__ __forceinline__ void Load() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      x[i].Clear();
      dy[i].Clear();
      if constexpr (kGated) gate[i].Clear();
      if (!present(i)) continue;
      x[i].Load(static_cast<const X*>(p.x) + at(i));
      dy[i].Load(static_cast<const G*>(p.grad_y) + at(i));
      if constexpr (kGated) gate[i].Load(static_cast<const X*>(p.gate) + at(i));
    }
  }

  __device__ __forceinline__ void Statistic() {
    float own = 0.0f;
    if (p.rstd_in != nullptr) {
      const int64_t row = place.row(PerLane::RowOfLane(place.lane));
      if (row < s.rows) own = p.rstd_in[row];
    } else {
      float sums[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i] = SumOfSquares(x[i]);
      own = RowStatistic(PerLane::Fold(sums, place.lane), static_cast<float>(s.length), s.eps);
    }
    PerLane::Spread(own, r);
  }

  // Row i: g, grad_gate, its part of the dot, and the terms c.
  __device__ __forceinline__ float TermsOfRow(int i, const float (&w)[kGroup], float (&c)[kGroup]) {
    float xs[kGroup], dys[kGroup], zs[kGroup] = {}, products[kGroup], dz[kGroup];
    x[i].ToFloats(xs);
    dy[i].ToFloats(dys);
    if constexpr (kGated) gate[i].ToFloats(zs);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      const Terms terms = Backward<kConvention, FormulaType<X>>(xs[e], r[i], w[e], dys[e], zs[e],
                                                                s.activation(), s.round_weighted);
      g[i][e] = terms.g;
      products[e] = arith::Fma(terms.g, terms.xh, 0.0f);
      c[e] = terms.c;
      dz[e] = terms.grad_gate;
    }
    if constexpr (kGated) {
      if (present(i) && p.grad_gate != nullptr) {
        device::Vector<X, kGroup> result;
        result.FromFloats(dz);
        result.Store(static_cast<X*>(p.grad_gate) + at(i));
      }
    }
    return inside ? FoldGroup(products) : 0.0f;
  }

  __device__ __forceinline__ void StoreGradX(float (&dots)[kRows]) {
    float k[kRows];
    PerLane::Spread(arith::Div(PerLane::Fold(dots, place.lane), static_cast<float>(s.length)), k);
    if (p.grad_x == nullptr) return;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (!present(i)) continue;
      float xs[kGroup], out[kGroup];
      x[i].ToFloats(xs);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        Terms terms = {};
        terms.xh = arith::Mul(xs[e], r[i]);
        terms.g = g[i][e];
        out[e] = GradX(terms, r[i], k[i]);
      }
      device::Vector<X, kGroup> result;
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_x) + at(i));
    }
  }
};

// Adds `rows` rows of a column of the tile to `sum`, in order.
template <int kRows, int kColumns>
__device__ __forceinline__ float AddColumn(const float* tile, int64_t rows, float sum) {
  if (rows >= kRows) {
#pragma unroll 16
    for (int row = 0; row < kRows; ++row) sum = arith::Add(sum, tile[row * kColumns]);
  } else {
    for (int row = 0; row < rows; ++row) sum = arith::Add(sum, tile[row * kColumns]);
  }
  return sum;
}

// Contiguous, 16-byte aligned, length a multiple of 8 and at most 8 kLanes. A block takes 128 rows.
// Grid: ceil(rows / 128).
template <typename X, typename G, Convention kConvention, int kLanes>
__global__ void __launch_bounds__(kNarrowThreads, 2)
    BackwardNarrowKernel(const BackwardPointers p, const FoldPointers fold, const Scalars s,
                         NarrowFold what) {
  constexpr int kRows = sizeof(X) == 4 ? 2 : 4;
  using Rows = NarrowRows<X, G, kConvention, kLanes, kRows>;
  constexpr int kPassRows = Rows::Place::kGroups * kRows;
  constexpr int kColumns = kLanes * kGroup;
  __shared__ alignas(16) float tile[kPassRows * kColumns];
  const int64_t begin = int64_t{blockIdx.x} * kFoldRows;
  float w[kGroup];
  LoadWeights<X, kConvention>(p.weight, static_cast<int>(threadIdx.x) % kLanes * kGroup, s, w);
  float partial = 0.0f;
#pragma unroll 1
  for (int64_t pass = begin; pass < begin + kFoldRows && pass < s.rows; pass += kPassRows) {
    Rows rows(p, s, pass);
    rows.Load();
    rows.Statistic();
    float dots[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      device::Vector<float, kGroup> terms;
      float c[kGroup];
      dots[i] = rows.TermsOfRow(i, w, c);
      terms.FromFloats(c);
      if (what == NarrowFold::kStore && rows.present(i)) {
        terms.Store(fold.terms + rows.at(i));
      } else if (what == NarrowFold::kChunk) {
        terms.Store(tile + (rows.place.row(i) - pass) * kColumns + rows.place.column());
      }
    }
    rows.StoreGradX(dots);
    if (what != NarrowFold::kChunk) continue;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < kColumns) {
      partial = AddColumn<kPassRows, kColumns>(tile + threadIdx.x, s.rows - pass, partial);
    }
    __syncthreads();
  }
  if (what == NarrowFold::kChunk && static_cast<int>(threadIdx.x) < s.length) {
    fold.partials[int64_t{blockIdx.x} * s.length + threadIdx.x] = partial;
  }
  device::AllowLaunchBehind();
}

// grad_x, grad_gate, and the terms for a fold that runs beside it (StoredLeftFoldKernel): a block
// goes from 128 rows to others, in order, and publishes in fold.ready which are there. The terms
// are stored column after column of 128 rows, kStoredPitch apart. Otherwise as
// BackwardNarrowKernel. Any grid.
template <typename X, typename G, Convention kConvention, int kLanes>
__global__ void __launch_bounds__(kNarrowThreads, 1)
    BackwardNarrowStoringKernel(const BackwardPointers p, const FoldPointers fold,
                                const Scalars s) {
  constexpr int kRows = sizeof(X) == 4 ? 2 : 4;
  using Rows = NarrowRows<X, G, kConvention, kLanes, kRows>;
  constexpr int kPassRows = Rows::Place::kGroups * kRows, kQuads = kPassRows / 4;
  constexpr int kPitch = kLanes * kGroup + 1;  // so that a column's rows lie in different banks
  __shared__ float tile[kPassRows][kPitch];
  device::AllowLaunchBehind();
  float w[kGroup];
  LoadWeights<X, kConvention>(p.weight, static_cast<int>(threadIdx.x) % kLanes * kGroup, s, w);
#pragma unroll 1
  for (int64_t block = blockIdx.x; block * kFoldRows < s.rows; block += gridDim.x) {
    float* terms = fold.terms + block * s.length * kStoredPitch;
#pragma unroll 1
    for (int pass = 0; pass < kFoldRows; pass += kPassRows) {
      const int64_t begin = block * kFoldRows + pass;
      if (begin >= s.rows) break;
      Rows rows(p, s, begin);
      rows.Load();
      rows.Statistic();
      float dots[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        float c[kGroup];
        dots[i] = rows.TermsOfRow(i, w, c);
        float* to = &tile[rows.place.row(i) - begin][rows.place.column()];
#pragma unroll
        for (int e = 0; e < kGroup; ++e) to[e] = c[e];
      }
      rows.StoreGradX(dots);
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kQuads * s.length; i += kNarrowThreads) {
        const int row = i % kQuads * 4, column = i / kQuads;
        *reinterpret_cast<float4*>(terms + column * kStoredPitch + pass + row) = make_float4(
            tile[row][column], tile[row + 1][column], tile[row + 2][column], tile[row + 3][column]);
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) device::StoreRelease(fold.ready + block, 1);
  }
}

}  // namespace rlk::rms_norm
