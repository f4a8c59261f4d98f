// Kernels of the FMA backward: grad_x from chunks of 64 outputs, and the parameter gradients as
// folds over rows. Which kernel runs depends on the shape alone; all of them give the same bits.
#pragma once

#include <cstdint>

#include "kernels/linear/activation.cuh"
#include "kernels/linear/problem.h"

namespace rlk::linear {

struct BackwardInputPointers {
  Shape shape;
  const float* g;       // [T, N]
  const float* weight;  // [N, K]
  float* partial;       // [chunks, T, K]; few rows
  float* grad_x;        // [T, K]
};

// Few rows: one warp for 128 columns and one chunk of outputs, whose weights are read once. Writes
// the chunk's partial sums.
template <int kRows>
__global__ void __launch_bounds__(32) PartialGradXKernel(const BackwardInputPointers p) {
  const auto [rows, outputs, inputs] = p.shape;
  const int64_t k = static_cast<int64_t>(blockIdx.x) * 128 + static_cast<int64_t>(threadIdx.x) * 4;
  const int64_t chunk = blockIdx.y;
  const int64_t begin = chunk * kBackwardChunk;
  const int count =
      static_cast<int>(outputs - begin < kBackwardChunk ? outputs - begin : kBackwardChunk);
  // The factors of the chunk, row by row.
  __shared__ float g[kRows][kBackwardChunk];
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kBackwardChunk; i += 32) {
    const int r = i / static_cast<int>(kBackwardChunk), n = i % static_cast<int>(kBackwardChunk);
    g[r][n] = r < rows && n < count ? p.g[r * outputs + begin + n] : 0.0f;
  }
  __syncwarp();
  if (k >= inputs) return;
  const float* w = p.weight + begin * inputs + k;
  float4 sum[kRows] = {};
  const auto step = [&](const float4& v, int n) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float factor = g[r][n];
      sum[r].x = __fmaf_rn(factor, v.x, sum[r].x);
      sum[r].y = __fmaf_rn(factor, v.y, sum[r].y);
      sum[r].z = __fmaf_rn(factor, v.z, sum[r].z);
      sum[r].w = __fmaf_rn(factor, v.w, sum[r].w);
    }
  };
  constexpr int kDepth = 8;
  int n = 0;
  for (; n + kDepth <= count; n += kDepth) {
    float4 v[kDepth];
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      v[d] = __ldg(reinterpret_cast<const float4*>(w + (n + d) * inputs));
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d) step(v[d], n + d);
  }
  for (; n < count; ++n) step(__ldg(reinterpret_cast<const float4*>(w + n * inputs)), n);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r < rows) {
      *reinterpret_cast<float4*>(p.partial + (chunk * rows + r) * inputs + k) = sum[r];
    }
  }
}

// grad_x[i] = the first partial sum, then the others added in order.
__global__ void __launch_bounds__(128)
    FoldPartialsKernel(const BackwardInputPointers p, int64_t chunks) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  const int64_t elements = p.shape.rows * p.shape.inputs;
  if (i >= elements) return;
  float d = p.partial[i];
#pragma unroll 8
  for (int64_t c = 1; c < chunks; ++c) d = __fadd_rn(d, p.partial[c * elements + i]);
  p.grad_x[i] = arith::Canonical(d);
}

// A block of 64 x 64 results from slabs of 16 steps in shared memory; a thread has 4 x 4 of them.
inline constexpr int kOuterTile = 64, kSlabSteps = 16, kOuterThreads = 256;
static_assert(kBackwardChunk % kSlabSteps == 0);

struct OuterSlab {
  // [step][row or column], so that a thread reads four at once.
  float factor[kSlabSteps][kOuterTile + 4];
  float matrix[kSlabSteps][kOuterTile];
};

// Columns [column, column + 64) of rows [step, step + 16) of a matrix [.., columns]; +0 beyond.
__device__ __forceinline__ void LoadMatrix(const float* matrix, int64_t columns, int64_t step,
                                           int64_t steps, int64_t column, OuterSlab& slab) {
  const int s = static_cast<int>(threadIdx.x) / 16, c = static_cast<int>(threadIdx.x) % 16 * 4;
  float4 v = {};
  if (step + s < steps && column + c < columns) {
    v = __ldg(reinterpret_cast<const float4*>(matrix + (step + s) * columns + column + c));
  }
  *reinterpret_cast<float4*>(&slab.matrix[s][c]) = v;
}

// sum = fma(factor, matrix, sum) for the first `count` steps of a slab, in order.
__device__ __forceinline__ void MultiplySlab(const OuterSlab& slab, int count, int row, int column,
                                             float (&sum)[4][4]) {
  const auto step = [&](int s) {
    const float4 f = *reinterpret_cast<const float4*>(&slab.factor[s][row]);
    const float4 m = *reinterpret_cast<const float4*>(&slab.matrix[s][column]);
    const float factors[4] = {f.x, f.y, f.z, f.w}, values[4] = {m.x, m.y, m.z, m.w};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[r][c] = __fmaf_rn(factors[r], values[c], sum[r][c]);
    }
  };
  if (count == kSlabSteps) {
#pragma unroll
    for (int s = 0; s < kSlabSteps; ++s) step(s);
  } else {
    for (int s = 0; s < count; ++s) step(s);
  }
}

// Many rows: rows [64 y ..), columns [64 x ..) of grad_x.
__global__ void __launch_bounds__(kOuterThreads) TileGradXKernel(const BackwardInputPointers p) {
  __shared__ OuterSlab slab;
  const auto [rows, outputs, inputs] = p.shape;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kOuterTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kOuterTile;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4;
  const int column = static_cast<int>(threadIdx.x) % 16 * 4;
  float d[4][4], sum[4][4];
  for (int64_t n = 0; n < outputs; n += kSlabSteps) {
    __syncthreads();
    LoadMatrix(p.weight, inputs, n, outputs, first_column, slab);
    for (int i = static_cast<int>(threadIdx.x); i < kSlabSteps * kOuterTile; i += kOuterThreads) {
      const int r = i / kSlabSteps, s = i % kSlabSteps;
      const bool inside = first_row + r < rows && n + s < outputs;
      slab.factor[s][r] = inside ? __ldg(p.g + (first_row + r) * outputs + n + s) : 0.0f;
    }
    __syncthreads();
    if (n % kBackwardChunk == 0) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float& total = d[i / 4][i % 4];
        if (n == kBackwardChunk) total = sum[i / 4][i % 4];
        if (n > kBackwardChunk) total = __fadd_rn(total, sum[i / 4][i % 4]);
        sum[i / 4][i % 4] = 0.0f;
      }
    }
    MultiplySlab(slab, static_cast<int>(outputs - n < kSlabSteps ? outputs - n : kSlabSteps), row,
                 column, sum);
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t t = first_row + row + r, k = first_column + column;
    if (t >= rows || k >= inputs) continue;
    float out[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      out[c] = outputs > kBackwardChunk ? __fadd_rn(d[r][c], sum[r][c]) : sum[r][c];
      out[c] = arith::Canonical(out[c]);
    }
    *reinterpret_cast<float4*>(p.grad_x + t * inputs + k) =
        make_float4(out[0], out[1], out[2], out[3]);
  }
}

struct BackwardWeightPointers {
  Shape shape;
  const float* g;      // [T, N]
  const float* x;      // [T, K]
  const float* carry;  // [N, K] or null
  float* grad_weight;  // [N, K] or null
  float* accumulator;  // [N, K] or null
};

// Outputs [64 y ..), columns [64 x ..) of the weight's gradient.
__global__ void __launch_bounds__(kOuterThreads)
    TileGradWeightKernel(const BackwardWeightPointers p) {
  __shared__ OuterSlab slab;
  const auto [rows, outputs, inputs] = p.shape;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kOuterTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kOuterTile;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4;
  const int column = static_cast<int>(threadIdx.x) % 16 * 4;
  const int64_t k = first_column + column;
  float sum[4][4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t n = first_row + row + r;
    if (p.carry == nullptr || n >= outputs || k >= inputs) continue;
    const float4 v = __ldg(reinterpret_cast<const float4*>(p.carry + n * inputs + k));
    sum[r][0] = v.x;
    sum[r][1] = v.y;
    sum[r][2] = v.z;
    sum[r][3] = v.w;
  }
  for (int64_t t = 0; t < rows; t += kSlabSteps) {
    __syncthreads();
    LoadMatrix(p.x, inputs, t, rows, first_column, slab);
    for (int i = static_cast<int>(threadIdx.x); i < kSlabSteps * kOuterTile; i += kOuterThreads) {
      const int s = i / kOuterTile, r = i % kOuterTile;
      const bool inside = first_row + r < outputs && t + s < rows;
      slab.factor[s][r] = inside ? __ldg(p.g + (t + s) * outputs + first_row + r) : 0.0f;
    }
    __syncthreads();
    MultiplySlab(slab, static_cast<int>(rows - t < kSlabSteps ? rows - t : kSlabSteps), row, column,
                 sum);
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t n = first_row + row + r;
    if (n >= outputs || k >= inputs) continue;
    const float4 v = make_float4(arith::Canonical(sum[r][0]), arith::Canonical(sum[r][1]),
                                 arith::Canonical(sum[r][2]), arith::Canonical(sum[r][3]));
    if (p.grad_weight != nullptr) {
      *reinterpret_cast<float4*>(p.grad_weight + n * inputs + k) = v;
    }
    if (p.accumulator != nullptr) {
      *reinterpret_cast<float4*>(p.accumulator + n * inputs + k) = v;
    }
  }
}

// One thread an output: A = add(A, g[t, n]), t ascending.
__global__ void __launch_bounds__(128)
    GradBiasKernel(const float* g, int64_t rows, int64_t outputs, const float* carry,
                   float* grad_bias, float* accumulator) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  if (n >= outputs) return;
  float sum = carry != nullptr ? carry[n] : 0.0f;
#pragma unroll 8
  for (int64_t t = 0; t < rows; ++t) sum = __fadd_rn(sum, __ldg(g + t * outputs + n));
  sum = arith::Canonical(sum);
  if (grad_bias != nullptr) grad_bias[n] = sum;
  if (accumulator != nullptr) accumulator[n] = sum;
}

__global__ void __launch_bounds__(256)
    ActivateKernel(Activation activation, const float* v, int64_t elements, float* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i < elements) y[i] = arith::Canonical(DeviceActivate(activation, v[i]));
}

__global__ void __launch_bounds__(256)
    GradientKernel(Activation activation, const float* grad_y, const float* pre, int64_t elements,
                   float* g) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i < elements) g[i] = DeviceActivationVjp(activation, grad_y[i], pre[i]);
}

}  // namespace rlk::linear
