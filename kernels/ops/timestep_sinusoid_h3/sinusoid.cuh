// Kernels of timestep_sinusoid_h3.
#pragma once

#include <cstdint>

#include "kernels/device/strided.cuh"
#include "kernels/device/vector_access.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/ops/timestep_sinusoid_h3/formula.h"

namespace rlk::timestep_sinusoid {

// CUDA's own functions, in full range and precision.
struct Libdevice {
  static __device__ __forceinline__ float Exp(float x) { return expf(x); }
  static __device__ __forceinline__ float Sin(float x) { return sinf(x); }
  static __device__ __forceinline__ float Cos(float x) { return cosf(x); }
};

struct Arguments {
  int64_t rows;
  int half;
  float log_period, inverse_half;
};

// A thread makes one cosine and the sine of the same angle. embedding is [rows, 2 half].
template <typename Functions, typename T>
__global__ void __launch_bounds__(128)
    ForwardKernel(const Arguments a, const T* timestep, int64_t stride, float* embedding) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  const int64_t t = i / a.half;
  const int k = static_cast<int>(i - t * a.half);
  if (t >= a.rows) return;
  const float frequency = Frequency<Functions>(a.log_period, a.inverse_half, k);
  const float angle = __fmul_rn(device::ToFloat(timestep[t * stride]), frequency);
  float* const row = embedding + t * 2 * a.half;
  row[k] = arith::Canonical(Functions::Cos(angle));
  row[a.half + k] = arith::Canonical(Functions::Sin(angle));
}

// Threads of a block, each of which holds every kThreads-th term of one row.
inline constexpr int kThreads = 128;
// Terms of a thread at most: 65,536 channels.
inline constexpr int kTermsMax = 512;

// One block a row. Term i of the padded row: +0 beyond the channels.
template <typename Functions>
__device__ __forceinline__ float Term(const Arguments& a, const float* grad,
                                      const device::StridedIndex& grad_at, const float* embedding,
                                      const device::StridedIndex& embedding_at, int64_t row,
                                      int i) {
  if (i >= 2 * a.half) return 0.0f;
  const bool cosine = i < a.half;
  const int k = cosine ? i : i - a.half;
  const int64_t first = row * 2 * a.half;
  const float g = grad[grad_at.Offset(first + i)];
  const float e = embedding[embedding_at.Offset(first + (cosine ? i + a.half : k))];
  const float frequency = Frequency<Functions>(a.log_period, a.inverse_half, k);
  return cosine ? CosineTerm(g, e, frequency) : SineTerm(g, e, frequency);
}

template <typename Functions, typename T>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(const Arguments a, int padded, const float* grad,
                   const device::StridedIndex grad_at, const float* embedding,
                   const device::StridedIndex embedding_at, T* grad_timestep) {
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  // The upper levels of the tree stay in a thread: v_i and v_(i+w), w a multiple of kThreads.
  float terms[kTermsMax];
  const int held = padded > kThreads ? padded / kThreads : 1;
  for (int j = 0; j < held; ++j) {
    terms[j] =
        Term<Functions>(a, grad, grad_at, embedding, embedding_at, row, j * kThreads + thread);
  }
  for (int width = held / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) terms[j] = __fadd_rn(terms[j], terms[j + width]);
  }
  __shared__ float shared[kThreads];
  float sum = terms[0];
  // Below that, levels of 64 and 32 through shared memory and the rest in a warp. Where the row is
  // shorter than the block, v_(i+w) is not of the row, and the level is left out.
  for (int width = kThreads / 2; width >= 32; width /= 2) {
    if (width >= padded) continue;
    shared[thread] = sum;
    __syncthreads();
    if (thread < width) sum = __fadd_rn(sum, shared[thread + width]);
    __syncthreads();
  }
  if (thread >= 32) return;
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const float other = __shfl_down_sync(device::kWholeWarp, sum, width);
    if (width < padded) sum = __fadd_rn(sum, other);
  }
  if (thread == 0) grad_timestep[row] = device::FromFloat<T>(arith::Canonical(sum));
}

}  // namespace rlk::timestep_sinusoid
