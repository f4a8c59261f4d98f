// Kernels of the FMA backward for few rows: grad_x from chunks of 64 outputs, and the bias's
// gradient as a fold over rows. backward_tile.cuh has those for many rows. Which kernel runs
// depends on the shape alone; all of them give the same bits.
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
