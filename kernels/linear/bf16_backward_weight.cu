// grad_weight for few rows, at the rate at which it can be written, and grad_bias.
#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/bf16_backward_tile.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/launch.cuh"

namespace rlk::linear {
namespace {

constexpr int kRowsMax = 8;
constexpr int kOutputs = 64;  // of a block
constexpr unsigned kThreadsMax = 384;

// Eight columns of one output.
__device__ __forceinline__ void WriteSums(const Bf16BackwardWeight& problem, int64_t at,
                                          const float (&sum)[8]) {
  if (problem.weight_acc != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) problem.weight_acc[at + i] = arith::Canonical(sum[i]);
  }
  if (problem.grad_weight.data == nullptr) return;
  if (problem.grad_weight.dtype == DType::kF32) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      static_cast<float*>(problem.grad_weight.data)[at + i] = arith::Canonical(sum[i]);
    }
  } else {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(problem.grad_weight.data) + at) = Pack8(sum);
  }
}

__global__ void __launch_bounds__(kThreadsMax) WeightKernel(Bf16BackwardWeight problem) {
  __shared__ __align__(16) float g[kOutputs][kRowsMax];
  const int64_t first = int64_t{blockIdx.x} * kOutputs;
  const int count = static_cast<int>(min(int64_t{kOutputs}, problem.shape.outputs - first));
  const int rows = static_cast<int>(problem.shape.rows);
  for (int i = static_cast<int>(threadIdx.x); i < count * rows; i += static_cast<int>(blockDim.x)) {
    g[i % count][i / count] = Gradient(problem.grad, i / count, first + i % count);
  }
  const int64_t k = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * 8;
  const bool inside = k < problem.shape.inputs;
  float x[kRowsMax][8];
#pragma unroll
  for (int t = 0; t < kRowsMax; ++t) {
    if (t < rows && inside) {
      Unpack8(__ldg(reinterpret_cast<const uint4*>(problem.x + t * problem.shape.inputs + k)),
              x[t]);
    }
  }
  __syncthreads();
  if (!inside) return;
  for (int n = 0; n < count; ++n) {
    const int64_t at = (first + n) * problem.shape.inputs + k;
    float sum[8] = {};
    if (problem.weight_carry != nullptr) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] = problem.weight_carry[at + i];
    }
#pragma unroll
    for (int t = 0; t < kRowsMax; ++t) {
      // Rows that are not there add nothing, not even +0 to -0.
      if (t < rows) {
        const float gn = g[n][t];
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[i] = arith::Fma(gn, x[t][i], sum[i]);
      }
    }
    WriteSums(problem, at, sum);
  }
}

constexpr int kBiasThreads = 128;

__global__ void __launch_bounds__(kBiasThreads) BiasKernel(Bf16BackwardWeight problem) {
  const int64_t n = int64_t{blockIdx.x} * kBiasThreads + threadIdx.x;
  if (n >= problem.shape.outputs) return;
  float sum = problem.bias_carry != nullptr ? problem.bias_carry[n] : 0.0f;
#pragma unroll 8
  for (int64_t t = 0; t < problem.shape.rows; ++t)
    sum = arith::Add(sum, Gradient(problem.grad, t, n));
  sum = arith::Canonical(sum);
  if (problem.bias_acc != nullptr) problem.bias_acc[n] = sum;
  if (problem.grad_bias.data == nullptr) return;
  if (problem.grad_bias.dtype == DType::kF32) {
    static_cast<float*>(problem.grad_bias.data)[n] = sum;
  } else {
    static_cast<device::Bf16*>(problem.grad_bias.data)[n] = device::FromFloat<device::Bf16>(sum);
  }
}

}  // namespace

absl::Status LaunchBf16BackwardWeight(const Bf16BackwardWeight& problem, StreamRef stream) {
  const cudaStream_t on = cuda::CudaStream(stream);
  if (problem.grad_bias.data != nullptr || problem.bias_acc != nullptr) {
    RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                         cuda::GridBlocks(problem.shape.outputs, kBiasThreads));
    RLK_RETURN_IF_ERROR(cuda::Launch(&BiasKernel, blocks, kBiasThreads, on, problem));
  }
  if (problem.grad_weight.data == nullptr && problem.weight_acc == nullptr) return absl::OkStatus();
  if (problem.shape.rows > kRowsMax) return LaunchTiledBackwardWeight(problem, on);
  const unsigned threads = RowThreads(problem.shape.inputs, kThreadsMax);
  const auto columns = static_cast<unsigned>((problem.shape.inputs / 8 + threads - 1) /
                                             static_cast<int64_t>(threads));
  const auto blocks = static_cast<unsigned>((problem.shape.outputs + kOutputs - 1) / kOutputs);
  return LaunchShared(&WeightKernel, dim3(blocks, columns), threads, 0, on, problem);
}

}  // namespace rlk::linear
