// C[m, k] = sum over r of A[r, m] B[r, k] by FMA chains, 128 x 128 outputs a block, 8 x 8 a thread.
//
//   grad_weight: m = output n, r = row t; one chain.
//   grad_x:      m = row t, r = output n; chains of 64, folded ascending.
#include "kernels/core/status.h"
#include "kernels/linear/bf16_backward_tile.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/launch.cuh"

namespace rlk::linear {
namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256, kChunk = 64;
static_assert(kChunk % kDepth == 0);

// Thread (y, x) of 16 x 16 owns rows 4 y .. + 3 and 64 + 4 y .. + 3 of the tile, columns alike.
__device__ __forceinline__ int Own(int thread, int i) { return i / 4 * 64 + thread * 4 + i % 4; }

struct Tiles {
  float a[kDepth][kTile];
  float b[kDepth][kTile];
};

// Products of `depth` terms of the tiles.
__device__ __forceinline__ void AddProducts(const Tiles& tiles, int depth, int y, int x,
                                            float (&sum)[8][8]) {
  const auto add = [&](int r) {
    float a[8], b[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      a[i] = tiles.a[r][Own(y, i)];
      b[i] = tiles.b[r][Own(x, i)];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[i][j] = arith::Fma(a[i], b[j], sum[i][j]);
    }
  };
  if (depth == kDepth) {
#pragma unroll
    for (int r = 0; r < kDepth; ++r) add(r);
  } else {
    for (int r = 0; r < depth; ++r) add(r);
  }
}

// b: rows [r0, r0 + kDepth) of a [R, K] BF16 matrix, columns [k0, k0 + kTile).
__device__ __forceinline__ void LoadB(const uint16_t* from, int64_t r0, int64_t r_end, int64_t k0,
                                      int64_t inputs, Tiles& tiles) {
  const int r = static_cast<int>(threadIdx.x) / 16, k = static_cast<int>(threadIdx.x) % 16 * 8;
  uint4 word = make_uint4(0, 0, 0, 0);
  if (r0 + r < r_end && k0 + k < inputs) {
    word = __ldg(reinterpret_cast<const uint4*>(from + (r0 + r) * inputs + k0 + k));
  }
  float values[8];
  Unpack8(word, values);
#pragma unroll
  for (int i = 0; i < 8; ++i) tiles.b[r][k + i] = values[i];
}

__global__ void __launch_bounds__(kThreads) WeightTileKernel(Bf16BackwardWeight problem) {
  __shared__ Tiles tiles;
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
  const int64_t n0 = int64_t{blockIdx.y} * kTile, k0 = int64_t{blockIdx.x} * kTile;
  float sum[8][8] = {};
  if (problem.weight_carry != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int64_t n = n0 + Own(y, i), k = k0 + Own(x, j);
        if (n < problem.shape.outputs && k < problem.shape.inputs) {
          sum[i][j] = problem.weight_carry[n * problem.shape.inputs + k];
        }
      }
    }
  }
  for (int64_t t0 = 0; t0 < problem.shape.rows; t0 += kDepth) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kDepth * kTile; i += kThreads) {
      const int64_t t = t0 + i / kTile, n = n0 + i % kTile;
      const bool present = t < problem.shape.rows && n < problem.shape.outputs;
      tiles.a[i / kTile][i % kTile] = present ? Gradient(problem.grad, t, n) : 0.0f;
    }
    LoadB(problem.x, t0, problem.shape.rows, k0, problem.shape.inputs, tiles);
    __syncthreads();
    AddProducts(tiles, static_cast<int>(min(int64_t{kDepth}, problem.shape.rows - t0)), y, x, sum);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t n = n0 + Own(y, i), k = k0 + Own(x, j);
      if (n >= problem.shape.outputs || k >= problem.shape.inputs) continue;
      const int64_t at = n * problem.shape.inputs + k;
      const float v = arith::Canonical(sum[i][j]);
      if (problem.weight_acc != nullptr) problem.weight_acc[at] = v;
      if (problem.grad_weight.data == nullptr) continue;
      if (problem.grad_weight.dtype == DType::kF32) {
        static_cast<float*>(problem.grad_weight.data)[at] = v;
      } else {
        static_cast<device::Bf16*>(problem.grad_weight.data)[at] =
            device::FromFloat<device::Bf16>(v);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) InputTileKernel(Bf16BackwardInput problem) {
  __shared__ Tiles tiles;
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
  const int64_t t0 = int64_t{blockIdx.y} * kTile, k0 = int64_t{blockIdx.x} * kTile;
  float total[8][8] = {};
  for (int64_t chunk = 0; chunk < problem.shape.outputs; chunk += kChunk) {
    const int64_t end = min(chunk + kChunk, problem.shape.outputs);
    float sum[8][8] = {};
    for (int64_t n0 = chunk; n0 < end; n0 += kDepth) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kDepth * kTile; i += kThreads) {
        const int64_t n = n0 + i % kDepth, t = t0 + i / kDepth;
        const bool present = n < end && t < problem.shape.rows;
        tiles.a[i % kDepth][i / kDepth] = present ? Gradient(problem.grad, t, n) : 0.0f;
      }
      LoadB(problem.weight, n0, end, k0, problem.shape.inputs, tiles);
      __syncthreads();
      AddProducts(tiles, static_cast<int>(min(int64_t{kDepth}, end - n0)), y, x, sum);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        total[i][j] = chunk == 0 ? sum[i][j] : arith::Add(total[i][j], sum[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t t = t0 + Own(y, i), k = k0 + Own(x, j);
      if (t < problem.shape.rows && k < problem.shape.inputs) {
        WriteGradX(problem, t * problem.shape.inputs + k, total[i][j]);
      }
    }
  }
}

unsigned TilesOf(int64_t count) { return static_cast<unsigned>((count + kTile - 1) / kTile); }

}  // namespace

absl::Status LaunchTiledBackwardWeight(const Bf16BackwardWeight& problem, cudaStream_t stream) {
  return LaunchShared(&WeightTileKernel,
                      dim3(TilesOf(problem.shape.inputs), TilesOf(problem.shape.outputs)), kThreads,
                      0, stream, problem);
}

absl::Status LaunchTiledBackwardInput(const Bf16BackwardInput& problem, cudaStream_t stream) {
  return LaunchShared(&InputTileKernel,
                      dim3(TilesOf(problem.shape.inputs), TilesOf(problem.shape.rows)), kThreads, 0,
                      stream, problem);
}

}  // namespace rlk::linear
