// grad_weight for few rows, at the rate at which it can be written, and grad_bias.
#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/launch.cuh"

namespace rlk::linear {
namespace {

constexpr int kRowsMax = 8;
constexpr int kOutputs = 64;  // of a block
constexpr unsigned kThreadsMax = 192;

constexpr int kColumns = 8;  // of a thread

// Columns of one output.
__device__ __forceinline__ void WriteSums(const Bf16BackwardWeight& problem, int64_t at,
                                          const float (&sum)[kColumns]) {
  const auto write = [&](float* to) {
#pragma unroll
    for (int i = 0; i < kColumns; i += 4) {
      *reinterpret_cast<float4*>(to + i) =
          make_float4(arith::Canonical(sum[i]), arith::Canonical(sum[i + 1]),
                      arith::Canonical(sum[i + 2]), arith::Canonical(sum[i + 3]));
    }
  };
  if (problem.weight_acc != nullptr) write(problem.weight_acc + at);
  if (problem.grad_weight.data == nullptr) return;
  if (problem.grad_weight.dtype == DType::kF32) {
    write(static_cast<float*>(problem.grad_weight.data) + at);
    return;
  }
  *reinterpret_cast<uint4*>(static_cast<uint16_t*>(problem.grad_weight.data) + at) = Pack8(sum);
}

template <int kRows>
__global__ void __launch_bounds__(kThreadsMax, kRows > 6 ? 3 : 4)
    WeightKernel(Bf16BackwardWeight problem, bool bias) {
  constexpr int kPadded = (kRows + 3) / 4 * 4;  // so that a channel's values are read together
  __shared__ __align__(16) float g[kOutputs][kPadded];
  const int64_t first = int64_t{blockIdx.x} * kOutputs;
  const int count = static_cast<int>(min(int64_t{kOutputs}, problem.shape.outputs - first));
  for (int i = static_cast<int>(threadIdx.x); i < kOutputs * kRows;
       i += static_cast<int>(blockDim.x)) {
    const int n = i % kOutputs;
    if (n < count) g[n][i / kOutputs] = Gradient(problem.grad, i / kOutputs, first + n);
  }
  const int64_t k = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kColumns;
  const bool inside = k < problem.shape.inputs;
  float x[kRows][kColumns];
#pragma unroll
  for (int t = 0; t < kRows; ++t) {
    if (inside) {
      Unpack8(__ldg(reinterpret_cast<const uint4*>(problem.x + t * problem.shape.inputs + k)),
              x[t]);
    }
  }
  __syncthreads();
  if (bias && blockIdx.y == 0) {
    for (int n = static_cast<int>(threadIdx.x); n < count; n += static_cast<int>(blockDim.x)) {
      float sum = problem.bias_carry != nullptr ? problem.bias_carry[first + n] : 0.0f;
#pragma unroll
      for (int t = 0; t < kRows; ++t) sum = arith::Add(sum, g[n][t]);
      WriteBias(problem, first + n, sum);
    }
  }
  if (!inside) return;
#pragma unroll 2
  for (int n = 0; n < count; ++n) {
    const int64_t at = (first + n) * problem.shape.inputs + k;
    float sum[kColumns] = {};
    if (problem.weight_carry != nullptr) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[i] = problem.weight_carry[at + i];
    }
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      const float gn = g[n][t];
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[i] = arith::Fma(gn, x[t][i], sum[i]);
    }
    WriteSums(problem, at, sum);
  }
}

using FewRowsKernel = void (*)(Bf16BackwardWeight, bool);
constexpr FewRowsKernel kFewRows[kRowsMax] = {&WeightKernel<1>, &WeightKernel<2>, &WeightKernel<3>,
                                              &WeightKernel<4>, &WeightKernel<5>, &WeightKernel<6>,
                                              &WeightKernel<7>, &WeightKernel<8>};

// One chain over the rows for each channel; eight channels a thread.
constexpr int kBiasThreads = 64;

__global__ void __launch_bounds__(kBiasThreads)
    BiasKernel(Bf16BackwardWeight problem, bool vector) {
  const int64_t first = (int64_t{blockIdx.x} * kBiasThreads + threadIdx.x) * 8;
  if (first >= problem.shape.outputs) return;
  const GradientColumns columns(problem.grad, vector, first);
  const int count = static_cast<int>(min(int64_t{8}, problem.shape.outputs - first));
  float sum[8] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (problem.bias_carry != nullptr && i < count) sum[i] = problem.bias_carry[first + i];
  }
#pragma unroll 16
  for (int64_t t = 0; t < problem.shape.rows; ++t) {
    float v[8];
    columns.Load(t, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] = arith::Add(sum[i], v[i]);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) WriteBias(problem, first + i, sum[i]);
  }
}

}  // namespace

absl::Status LaunchBf16BackwardWeight(const Bf16BackwardWeight& problem, StreamRef stream) {
  const cudaStream_t on = cuda::CudaStream(stream);
  const Shape& shape = problem.shape;
  const bool bias = problem.grad_bias.data != nullptr || problem.bias_acc != nullptr;
  const bool weight = problem.grad_weight.data != nullptr || problem.weight_acc != nullptr;
  const bool few = shape.rows <= kRowsMax;
  if (bias && !(few && weight)) {
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(shape.outputs, 8 * kBiasThreads));
    RLK_RETURN_IF_ERROR(
        cuda::Launch(&BiasKernel, blocks, kBiasThreads, on, problem, VectorGradient(problem.grad)));
  }
  if (!weight) return absl::OkStatus();
  if (!few) {
    return LaunchTiledBackwardWeight({shape,
                                      problem.grad,
                                      {DType::kBF16, problem.x},
                                      problem.weight_carry,
                                      problem.weight_acc,
                                      problem.grad_weight},
                                     stream);
  }
  const int64_t groups = shape.inputs / kColumns;
  const unsigned threads = RowThreads(groups, kThreadsMax);
  const auto columns = static_cast<unsigned>((groups + threads - 1) / int64_t{threads});
  const auto blocks = static_cast<unsigned>((shape.outputs + kOutputs - 1) / kOutputs);
  return LaunchShared(kFewRows[shape.rows - 1], dim3(blocks, columns), threads, 0, on, problem,
                      bias);
}

}  // namespace rlk::linear
