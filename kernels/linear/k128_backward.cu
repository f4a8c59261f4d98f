// Backward of bf16-k128-v1: what the product kernel is given, and what goes before and after it.
#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/k128_backward.cuh"
#include "kernels/linear/k128_cuda.h"
#include "kernels/linear/k128_fold.cuh"
#include "kernels/linear/workspace.h"

namespace rlk::linear {
namespace {

constexpr int kThreads = 256;

// The exact parts of eight FP32 values, as BF16: `part` 0 is the value's own rounding, 1 and 2 that
// of what is left.
__device__ __forceinline__ uint4 PartOf(const float (&g)[8], int part) {
  float out[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float left = g[i], rounded = arith::Bf16ToFloat(device::FromFloat<device::Bf16>(left).bits);
    for (int p = 0; p < part; ++p) {
      left = arith::Sub(left, rounded);
      rounded = arith::Bf16ToFloat(device::FromFloat<device::Bf16>(left).bits);
    }
    out[i] = rounded;
  }
  return Pack8(out);
}

// Term `term` of `terms` is part terms - 1 - term: the smallest comes first.
__device__ __forceinline__ int PartOfTerm(int term, int terms) { return terms - 1 - term; }

// g [terms][T, stride] in BF16, eight channels a thread, zero beyond N.
__global__ void __launch_bounds__(kThreads)
    SplitGradientKernel(GradientSource grad, bool vector, int64_t rows, int64_t stride, int terms,
                        int64_t term_words, uint4* split) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * stride / 8) return;
  const int64_t t = i * 8 / stride, n = i * 8 - t * stride;
  float g[8];
  Gradient8(grad, vector, t, n, grad.outputs, g);
  for (int term = 0; term < terms; ++term) {
    split[term * term_words + i] = PartOf(g, PartOfTerm(term, terms));
  }
}

// The parts of the reduction, (p0 + p1) + (p2 + p3), and what follows the sum.
__global__ void __launch_bounds__(kThreads)
    FoldPartsKernel(Bf16BackwardInput problem, const float* partial, int64_t parts) {
  const int64_t elements = problem.shape.rows * problem.shape.inputs;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  WriteGradX(problem, i, FoldParts(partial, elements, i, parts));
}

// grad_bias: a warp has 256 channels of one chunk of 128 rows, which begins from +0; the chunks of
// a turn are then added in order, one thread a channel.
constexpr int kBiasChannels = 256;

__global__ void __launch_bounds__(kThreads) BiasKernel(Bf16BackwardWeight problem, bool vector) {
  constexpr int kWarps = kThreads / 32;
  static_assert(kThreads == kBiasChannels);
  __shared__ __align__(16) float sums[kWarps][kBiasChannels];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first = int64_t{blockIdx.x} * kBiasChannels;
  const GradientColumns columns(problem.grad, vector, first + lane * 8);
  const int64_t n = first + threadIdx.x;
  float total = 0.0f;
  if (problem.bias_carry != nullptr && n < problem.shape.outputs) total = problem.bias_carry[n];
  for (int64_t turn = 0; turn < problem.shape.rows; turn += kWarps * 128) {
    const int64_t begin = turn + warp * 128, end = min(begin + 128, problem.shape.rows);
    float sum[8] = {};
#pragma unroll 8
    for (int64_t t = begin; t < end; ++t) {
      float v[8];
      columns.Load(t, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] = arith::Add(sum[i], v[i]);
    }
    auto* const to = reinterpret_cast<float4*>(&sums[warp][lane * 8]);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    __syncthreads();
    for (int i = 0; i < kWarps && turn + i * 128 < problem.shape.rows; ++i) {
      total = arith::Add(total, sums[i][threadIdx.x]);
    }
    __syncthreads();
  }
  if (n < problem.shape.outputs) WriteBias(problem, n, total);
}

int Terms(bool f32) { return f32 ? kTermsMax : 1; }
int64_t SplitStride(int64_t outputs) { return (outputs + 7) / 8 * 8; }

template <typename Kernel, typename... Args>
absl::Status LaunchOver(Kernel kernel, int64_t items, cudaStream_t stream, Args... args) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(items, kThreads));
  return cuda::Launch(kernel, blocks, kThreads, stream, args...);
}

struct Matrix {
  const uint16_t* data;
  int64_t rows, columns;
};

template <typename P, bool kAlongR>
absl::Status LaunchProduct(const ProductShape& shape, const K128Gradient& a, const Matrix& b,
                           const ProductOutput& out, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  ProductMaps maps;
  for (int i = 0; i < shape.terms; ++i) {
    RLK_ASSIGN_OR_RETURN(maps.a[i], cuda::MatrixTiles(a.term[i], a.rows, a.outputs, a.stride,
                                                      kAlongR ? P::kM : kProductDepth));
  }
  RLK_ASSIGN_OR_RETURN(maps.b,
                       cuda::MatrixTiles(b.data, b.rows, b.columns, b.columns, kProductDepth));
  const int64_t items = (shape.m + P::kM - 1) / P::kM *
                        ((shape.columns + P::kColumns - 1) / P::kColumns) * shape.parts;
  return cuda::LaunchWith(
      &K128ProductKernel<P, kAlongR>,
      {.blocks = static_cast<unsigned>(std::min<int64_t>(device.multiprocessors, items)),
       .threads = P::kThreads,
       .shared_bytes = P::kSharedBytes},
      stream, maps, shape, out);
}

using WidePlan = ProductPlan<192, 2, 5>;
// For few rows: more tiles, so that all multiprocessors read the weights.
using NarrowPlan = ProductPlan<64, 1, 12>;

}  // namespace

int64_t K128GradientBytes(const GradientSource& grad, int64_t rows) {
  return Terms(grad.f32) * AlignWorkspace(rows * SplitStride(grad.outputs) * 2);
}

absl::Status PrepareK128Gradient(const GradientSource& grad, int64_t rows, void* workspace,
                                 StreamRef stream, K128Gradient& prepared) {
  prepared.rows = rows;
  prepared.outputs = grad.outputs;
  prepared.stride = SplitStride(grad.outputs);
  prepared.terms = Terms(grad.f32);
  if (!grad.f32 && grad.view_width == 0 && grad.views[0] != nullptr && VectorGradient(grad)) {
    prepared.term[0] = static_cast<const uint16_t*>(grad.views[0]);
    return absl::OkStatus();
  }
  auto* const split = static_cast<uint16_t*>(workspace);
  const int64_t elements = rows * prepared.stride;
  for (int i = 0; i < prepared.terms; ++i)
    prepared.term[i] = split + i * (AlignWorkspace(elements * 2) / 2);
  return LaunchOver(&SplitGradientKernel, elements / 8, cuda::CudaStream(stream), grad,
                    VectorGradient(grad), rows, prepared.stride, prepared.terms,
                    AlignWorkspace(elements * 2) / 16, reinterpret_cast<uint4*>(split));
}

int64_t K128BackwardInputBytes(const Shape& shape, int64_t parts) {
  return parts * shape.rows * shape.inputs * static_cast<int64_t>(sizeof(float));
}

absl::Status LaunchK128BackwardInput(const Bf16BackwardInput& problem, const K128Gradient& grad,
                                     int64_t parts, void* workspace, StreamRef stream) {
  const cudaStream_t on = cuda::CudaStream(stream);
  const Shape& shape = problem.shape;
  auto* const partial = static_cast<float*>(workspace);
  const auto launch =
      shape.rows <= 64 ? &LaunchProduct<NarrowPlan, true> : &LaunchProduct<WidePlan, true>;
  RLK_RETURN_IF_ERROR(
      launch({shape.rows, shape.inputs, shape.outputs, grad.terms, static_cast<int>(parts)}, grad,
             {problem.weight, shape.outputs, shape.inputs}, {partial, nullptr, nullptr}, on));
  return LaunchOver(&FoldPartsKernel, shape.rows * shape.inputs, on, problem,
                    static_cast<const float*>(partial), parts);
}

absl::Status LaunchK128BackwardWeight(const Bf16BackwardWeight& problem, const K128Gradient& grad,
                                      StreamRef stream) {
  const cudaStream_t on = cuda::CudaStream(stream);
  if (problem.grad_bias.data != nullptr || problem.bias_acc != nullptr) {
    RLK_RETURN_IF_ERROR(
        LaunchOver(&BiasKernel, problem.shape.outputs, on, problem, VectorGradient(problem.grad)));
  }
  ProductOutput out;
  out.start = problem.weight_carry;
  out.f32 = problem.weight_acc;
  if (problem.grad_weight.dtype == DType::kBF16) {
    out.bf16 = static_cast<uint16_t*>(problem.grad_weight.data);
  } else if (problem.grad_weight.data != nullptr) {
    if (out.f32 == nullptr) {
      out.f32 = static_cast<float*>(problem.grad_weight.data);
    } else {
      out.copy = static_cast<float*>(problem.grad_weight.data);
    }
  }
  if (out.f32 == nullptr && out.bf16 == nullptr) return absl::OkStatus();
  return LaunchProduct<WidePlan, false>(
      {problem.shape.outputs, problem.shape.inputs, problem.shape.rows, grad.terms, 1}, grad,
      {problem.x, problem.shape.rows, problem.shape.inputs}, out, on);
}

}  // namespace rlk::linear
