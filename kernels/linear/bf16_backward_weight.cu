// grad_weight for few rows, at the rate at which it can be written, and grad_bias.
#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/launch.cuh"

namespace rlk::linear {
namespace {

constexpr int kRowsMax = 8;
// Outputs whose gradients are staged together.
template <bool kPlain>
constexpr int kOutputs = kPlain ? 32 : 64;
// Plain outputs: a block a multiprocessor has all columns of AdaLN. Others wait for their carries,
// which more and smaller blocks hide.
template <bool kPlain>
constexpr unsigned kThreadsMax = kPlain ? 352 : 192;
template <int kRows, bool kPlain>
constexpr int kBlocksMin = kPlain      ? 1
                           : kRows > 6 ? 3
                                       : 4;
constexpr int kColumns = 8;  // of a thread
// Of few rows: what a grid's second dimension has room for.
constexpr int64_t kInputsMax = int64_t{65535} * kThreadsMax<false> * kColumns;

// Sixteen bytes at once; the compiler splits such stores in these loops.
__device__ __forceinline__ void Store(void* to, const uint4& words) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w));
}

// Columns of one output.
__device__ __forceinline__ void WriteSums(const Bf16BackwardWeight& problem, int64_t at,
                                          const float (&sum)[kColumns]) {
  const auto bits = [&](int i) { return arith::FloatBits(arith::Canonical(sum[i])); };
  const auto write = [&](float* to) {
#pragma unroll
    for (int i = 0; i < kColumns; i += 4) {
      Store(to + i, make_uint4(bits(i), bits(i + 1), bits(i + 2), bits(i + 3)));
    }
  };
  if (problem.weight_acc != nullptr) write(problem.weight_acc + at);
  if (problem.grad_weight.data == nullptr) return;
  if (problem.grad_weight.dtype == DType::kF32) {
    write(static_cast<float*>(problem.grad_weight.data) + at);
    return;
  }
  Store(static_cast<uint16_t*>(problem.grad_weight.data) + at, Pack8(sum));
}

// The gradients of some outputs, all rows of one of them together.
template <int kRows, int kCount>
struct StagedGradients {
  static constexpr int kPadded = (kRows + 3) / 4 * 4;
  float g[kCount][kPadded];

  static __device__ __forceinline__ float Read(const GradientSource& source, int i, int64_t first) {
    const int64_t channel = first + i % kCount;
    if (i >= kCount * kRows || channel >= source.outputs) return 0.0f;
    return Gradient(source, i / kCount, channel);
  }
  // `ahead`: what Read gave for this thread.
  __device__ __forceinline__ void Put(const GradientSource& source, int64_t first, float ahead) {
    int i = static_cast<int>(threadIdx.x);
    if (i < kCount * kRows) g[i % kCount][i / kCount] = ahead;
    for (i += static_cast<int>(blockDim.x); i < kCount * kRows; i += static_cast<int>(blockDim.x)) {
      g[i % kCount][i / kCount] = Read(source, i, first);
    }
  }
  __device__ __forceinline__ void Get(int n, float (&values)[kPadded]) const {
#pragma unroll
    for (int t = 0; t < kPadded; t += 4) {
      const float4 v = *reinterpret_cast<const float4*>(&g[n][t]);
      values[t] = v.x, values[t + 1] = v.y, values[t + 2] = v.z, values[t + 3] = v.w;
    }
  }
};

// kPlain: no carry, and BF16 alone is written. Then nothing but loads of gradients, chains, casts
// and stores stands in the loop.
template <int kRows, bool kPlain>
__device__ __forceinline__ void WriteOutputs(const Bf16BackwardWeight& problem,
                                             const StagedGradients<kRows, kOutputs<kPlain>>& staged,
                                             const float (&x)[kRows][kColumns], int64_t first,
                                             int count) {
  uint16_t* to = static_cast<uint16_t*>(problem.grad_weight.data) + first;
#pragma unroll(kPlain ? 4 : 2)
  for (int n = 0; n < count; ++n) {
    float sum[kColumns] = {}, g[StagedGradients<kRows, 1>::kPadded];
    if (!kPlain && problem.weight_carry != nullptr) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        sum[i] = problem.weight_carry[first + n * problem.shape.inputs + i];
      }
    }
    staged.Get(n, g);
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[i] = arith::Fma(g[t], x[t][i], sum[i]);
    }
    if constexpr (kPlain) {
      Store(to, Pack8(sum));
      to += problem.shape.inputs;
    } else {
      WriteSums(problem, first + n * problem.shape.inputs, sum);
    }
  }
}

// A block keeps its columns of x and takes kOutputs outputs, then those that gridDim.x blocks
// further on: what the blocks write at a time is one region. Outputs that are not plain have a
// block for each kOutputs.
template <int kRows, bool kPlain>
__global__ void __launch_bounds__(kThreadsMax<kPlain>, kBlocksMin<kRows, kPlain>)
    WeightKernel(Bf16BackwardWeight problem, bool bias) {
  constexpr int kCount = kOutputs<kPlain>;
  using Staged = StagedGradients<kRows, kCount>;
  __shared__ __align__(16) Staged staged[2];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t outputs = problem.shape.outputs, inputs = problem.shape.inputs;
  const int64_t k = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kColumns;
  const bool inside = k < inputs;
  float x[kRows][kColumns];
#pragma unroll
  for (int t = 0; t < kRows; ++t) {
    if (inside) Unpack8(__ldg(reinterpret_cast<const uint4*>(problem.x + t * inputs + k)), x[t]);
  }
  const int64_t hop = int64_t{gridDim.x} * kCount;
  int64_t first = int64_t{blockIdx.x} * kCount;
  float ahead = Staged::Read(problem.grad, thread, first);
  for (int turn = 0; first < outputs; first += hop, turn ^= 1) {
    staged[turn].Put(problem.grad, first, ahead);
    __syncthreads();  // and nobody reads what the next turn overwrites
    if (first + hop < outputs) ahead = Staged::Read(problem.grad, thread, first + hop);
    const int count = static_cast<int>(min(int64_t{kCount}, outputs - first));
    const auto write_bias = [&](int n) {
      float sum = problem.bias_carry != nullptr ? problem.bias_carry[first + n] : 0.0f;
#pragma unroll
      for (int t = 0; t < kRows; ++t) sum = arith::Add(sum, staged[turn].g[n][t]);
      WriteBias(problem, first + n, sum);
    };
    if (bias && blockIdx.y == 0 && thread < count) write_bias(thread);
    if constexpr (kCount > 32) {  // than the smallest block has threads
      for (int n = thread + static_cast<int>(blockDim.x); bias && blockIdx.y == 0 && n < count;
           n += static_cast<int>(blockDim.x)) {
        write_bias(n);
      }
    }
    if (inside) WriteOutputs<kRows, kPlain>(problem, staged[turn], x, first * inputs + k, count);
  }
}

using FewRowsKernel = void (*)(Bf16BackwardWeight, bool);
template <bool kPlain>
constexpr FewRowsKernel kFewRows[kRowsMax] = {&WeightKernel<1, kPlain>, &WeightKernel<2, kPlain>,
                                              &WeightKernel<3, kPlain>, &WeightKernel<4, kPlain>,
                                              &WeightKernel<5, kPlain>, &WeightKernel<6, kPlain>,
                                              &WeightKernel<7, kPlain>, &WeightKernel<8, kPlain>};

absl::Status LaunchFewRows(const Bf16BackwardWeight& problem, bool bias, cudaStream_t stream) {
  const Shape& shape = problem.shape;
  const bool plain = problem.weight_carry == nullptr && problem.weight_acc == nullptr &&
                     problem.grad_weight.dtype == DType::kBF16;
  const FewRowsKernel kernel = (plain ? kFewRows<true> : kFewRows<false>)[shape.rows - 1];
  const int64_t groups = shape.inputs / kColumns;
  const unsigned threads = RowThreads(groups, plain ? kThreadsMax<true> : kThreadsMax<false>);
  const int64_t columns = (groups + threads - 1) / int64_t{threads};
  const int outputs = plain ? kOutputs<true> : kOutputs<false>;
  int64_t blocks = (shape.outputs + outputs - 1) / outputs;
  if (plain) {  // as many as run at a time
    int resident = 0;
    RLK_CUDA_RETURN_IF_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &resident, reinterpret_cast<const void*>(kernel), static_cast<int>(threads), 0));
    RLK_ASSIGN_OR_RETURN(const int multiprocessors, MultiprocessorCount());
    blocks = std::min(blocks, std::max<int64_t>(1, int64_t{multiprocessors} * resident / columns));
  }
  return LaunchShared(kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(columns)),
                      threads, 0, stream, problem, bias);
}

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
  const bool few = shape.rows <= kRowsMax && shape.inputs <= kInputsMax;
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
  return LaunchFewRows(problem, bias, on);
}

}  // namespace rlk::linear
