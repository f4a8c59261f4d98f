// Backward of bf16-k128-v1: what the product kernel is given, and what goes before and after it.
#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/k128_backward.cuh"
#include "kernels/linear/k128_cuda.h"
#include "kernels/linear/k128_few_rows.h"
#include "kernels/linear/k128_fold.cuh"
#include "kernels/linear/launch.cuh"
#include "kernels/linear/workspace.h"

namespace rlk::linear {
namespace {

constexpr int kThreads = 256;

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
  device::WaitForLaunchAhead();
  if (i >= elements) return;
  WriteGradX(problem, i, FoldParts(partial, elements, i, parts));
}

// grad_bias: a warp has 256 channels of one chunk of 128 rows, which begins from +0; the chunks of
// a turn are then added in order.
constexpr int kBiasChannels = 256;
constexpr int kBiasWarpsMax = kThreads / 32;

__global__ void __launch_bounds__(kThreads) BiasKernel(Bf16BackwardWeight problem, bool vector) {
  __shared__ __align__(16) float sums[kBiasWarpsMax][kBiasChannels];
  __shared__ float totals[kBiasChannels];
  device::AllowLaunchBehind();
  const int warps = static_cast<int>(blockDim.x) / 32, thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const int64_t first = int64_t{blockIdx.x} * kBiasChannels, outputs = problem.shape.outputs;
  const GradientColumns columns(problem.grad, vector, first + lane * 8);
  for (int c = thread; c < kBiasChannels; c += warps * 32) {
    const bool carried = problem.bias_carry != nullptr && first + c < outputs;
    totals[c] = carried ? problem.bias_carry[first + c] : 0.0f;
  }
  for (int64_t turn = 0; turn < problem.shape.rows; turn += warps * 128) {
    const int64_t begin = turn + warp * 128, end = min(begin + 128, problem.shape.rows);
    float sum[8] = {};
    columns.Add(begin, end, sum);
    auto* const to = reinterpret_cast<float4*>(&sums[warp][lane * 8]);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    __syncthreads();
    for (int c = thread; c < kBiasChannels; c += warps * 32) {
      for (int i = 0; i < warps && turn + i * 128 < problem.shape.rows; ++i) {
        totals[c] = arith::Add(totals[c], sums[i][c]);
      }
    }
    __syncthreads();
  }
  for (int c = thread; c < kBiasChannels && first + c < outputs; c += warps * 32) {
    WriteBias(problem, first + c, totals[c]);
  }
}

absl::Status LaunchBias(const Bf16BackwardWeight& problem, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                       cuda::GridBlocks(problem.shape.outputs, kBiasChannels));
  const auto warps = std::min<int64_t>((problem.shape.rows + 127) / 128, kBiasWarpsMax);
  return cuda::Launch(&BiasKernel, blocks, static_cast<unsigned>(32 * warps), stream, problem,
                      VectorGradient(problem.grad));
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

template <typename P>
int64_t Items(const ProductShape& shape) {
  return (shape.m + P::kM - 1) / P::kM * ((shape.columns + P::kColumns - 1) / P::kColumns) *
         shape.parts;
}

template <typename P, bool kAlongR>
absl::Status LaunchProduct(ProductShape shape, const K128Gradient& a, const Matrix& b,
                           const ProductOutput& out, bool starts_early, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  shape.a_rows = static_cast<int>(std::min<int64_t>(P::kM, (shape.m + 7) / 8 * 8));
  ProductMaps maps;
  for (int i = 0; i < shape.terms; ++i) {
    RLK_ASSIGN_OR_RETURN(maps.a[i], cuda::MatrixTiles(a.term[i], a.rows, a.outputs, a.stride,
                                                      kAlongR ? shape.a_rows : kProductDepth));
  }
  RLK_ASSIGN_OR_RETURN(maps.b,
                       cuda::MatrixTiles(b.data, b.rows, b.columns, b.columns, kProductDepth));
  if constexpr (P::kStores > 0) {
    RLK_ASSIGN_OR_RETURN(
        maps.c, cuda::MatrixTiles(out.bf16, shape.m, shape.columns, shape.columns, kStoreRows));
  }
  const int64_t items = Items<P>(shape);
  return cuda::LaunchWith(
      &K128ProductKernel<P, kAlongR>,
      {.blocks = static_cast<unsigned>(std::min<int64_t>(device.multiprocessors, items)),
       .threads = P::kThreads,
       .shared_bytes = P::kSharedBytes,
       .starts_early = starts_early},
      stream, maps, shape, out);
}

using WidePlan = ProductPlan<192, 2, 5>;

using LaunchFn = absl::Status (*)(ProductShape, const K128Gradient&, const Matrix&,
                                  const ProductOutput&, bool, cudaStream_t);

// The one of two plans whose busiest multiprocessor has the fewer columns; the first, if both have
// as many.
template <typename First, typename Second>
LaunchFn FewerColumns(const ProductShape& shape, int64_t multiprocessors) {
  const auto columns = [&](int64_t items, int64_t tile_columns) {
    return (items + multiprocessors - 1) / multiprocessors * tile_columns;
  };
  return columns(Items<First>(shape), First::kColumns) <=
                 columns(Items<Second>(shape), Second::kColumns)
             ? &LaunchProduct<First, true>
             : &LaunchProduct<Second, true>;
}

absl::StatusOr<LaunchFn> GradXLaunch(const ProductShape& shape) {
  RLK_ASSIGN_OR_RETURN(const int count, MultiprocessorCount());
  if (shape.m > 64) return FewerColumns<WidePlan, ProductPlan<128, 2, 6>>(shape, count);
  using Narrow = ProductPlan<64, 1, 12>;
  if (shape.terms > 1) return FewerColumns<ProductPlan<128, 1, 9>, Narrow>(shape, count);
  return FewerColumns<ProductPlan<128, 1, 7, 0, 2>, Narrow>(shape, count);
}

// BF16 results go out in copies.
LaunchFn GradWeightLaunch(const ProductShape& shape, const ProductOutput& out) {
  if (out.f32 != nullptr) return &LaunchProduct<WidePlan, false>;
  if (shape.length <= 64) return &LaunchProduct<ProductPlan<128, 2, 6, 2>, false>;
  if (shape.length <= 128) return &LaunchProduct<ProductPlan<128, 3, 4, 2>, false>;
  return &LaunchProduct<ProductPlan<192, 2, 4, 3>, false>;
}

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
  const ProductShape product = {.m = shape.rows,
                                .columns = shape.inputs,
                                .length = shape.outputs,
                                .terms = grad.terms,
                                .parts = static_cast<int>(parts)};
  RLK_ASSIGN_OR_RETURN(const LaunchFn launch, GradXLaunch(product));
  RLK_RETURN_IF_ERROR(launch(product, grad, {problem.weight, shape.outputs, shape.inputs},
                             {.f32 = partial}, false, on));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                       cuda::GridBlocks(shape.rows * shape.inputs, kThreads));
  return cuda::LaunchWith(&FoldPartsKernel,
                          {.blocks = blocks, .threads = kThreads, .starts_early = true}, on,
                          problem, static_cast<const float*>(partial), parts);
}

absl::Status LaunchK128BackwardWeight(const Bf16BackwardWeight& problem, const K128Gradient& grad,
                                      StreamRef stream) {
  const cudaStream_t on = cuda::CudaStream(stream);
  const bool weight = problem.grad_weight.data != nullptr || problem.weight_acc != nullptr;
  if (weight && K128FewRows(problem)) return LaunchK128FewRowsWeight(problem, stream);
  const bool bias = problem.grad_bias.data != nullptr || problem.bias_acc != nullptr;
  if (bias) RLK_RETURN_IF_ERROR(LaunchBias(problem, on));
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
  if (!weight) return absl::OkStatus();
  const ProductShape product = {.m = problem.shape.outputs,
                                .columns = problem.shape.inputs,
                                .length = problem.shape.rows,
                                .terms = grad.terms};
  return GradWeightLaunch(product, out)(
      product, grad, {problem.x, problem.shape.rows, problem.shape.inputs}, out, bias, on);
}

}  // namespace rlk::linear
