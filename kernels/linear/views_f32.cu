#include <cstddef>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/cuda.h"
#include "kernels/linear/views_f32.h"
#include "kernels/linear/workspace.h"

namespace rlk::linear {
namespace {

constexpr int kThreads = 256;
// Up to here grad_temb is made from partial sums, which read g as a table.
constexpr int64_t kTableRows = 8;

// One thread an element of the table.
__global__ void __launch_bounds__(kThreads)
    ScatterKernel(Shape shape, const float* table, Bf16Output out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= shape.rows * shape.outputs) return;
  const int64_t t = i / shape.outputs, channel = i - t * shape.outputs;
  const int64_t chunk = channel / out.view_width;  // 6 m + c
  const int64_t modality = chunk / kViews;
  void* to = nullptr;
#pragma unroll
  for (int c = 0; c < kViews; ++c) {
    if (chunk - modality * kViews == c) to = out.views[c];
  }
  if (to == nullptr) return;
  const int64_t column = channel - chunk * out.view_width;
  static_cast<float*>(to)[(3 * t + modality) * out.view_width + column] = table[i];
}

__global__ void __launch_bounds__(kThreads)
    GatherKernel(Shape shape, GradientSource grad, float* g) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= shape.rows * shape.outputs) return;
  g[i] = Gradient(grad, i / shape.outputs, i % shape.outputs);
}

// g stands first in the workspace.
int64_t TableBytes(const Shape& shape) {
  if (shape.rows > kTableRows) return 0;
  const int64_t bytes = shape.rows * shape.outputs * static_cast<int64_t>(sizeof(float));
  return AlignWorkspace(bytes);
}

absl::Status BackwardTemb(const ViewsBackwardF32& p, void* workspace, StreamRef stream) {
  if (p.shape.rows > kTableRows) {
    const TiledBackwardInput tiled{
        p.shape, p.grad, {DType::kF32, p.weight}, {DType::kF32, p.grad_temb}, p.temb, p.silu};
    return LaunchTiledBackwardInput(tiled, workspace, stream);
  }
  auto* const g = static_cast<float*>(workspace);
  RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                       cuda::GridBlocks(p.shape.rows * p.shape.outputs, kThreads));
  RLK_RETURN_IF_ERROR(
      cuda::Launch(&GatherKernel, blocks, kThreads, cuda::CudaStream(stream), p.shape, p.grad, g));
  BackwardInput table;
  table.shape = p.shape;
  table.g = g;
  table.weight = {DType::kF32, p.weight};
  table.grad_x = {DType::kF32, p.grad_temb};
  RLK_RETURN_IF_ERROR(LaunchBackwardInputFp32(
      table, static_cast<std::byte*>(workspace) + TableBytes(p.shape), stream));
  const Activation silu = p.silu == SiluKind::kPortable ? Activation::kSilu : Activation::kSiluCuda;
  return LaunchGradient(silu, p.grad_temb, p.temb, p.shape.rows * p.shape.inputs, p.grad_temb,
                        stream);
}

}  // namespace

absl::Status LaunchScatterViews(const Shape& shape, const float* table, const Bf16Output& out,
                                StreamRef stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                       cuda::GridBlocks(shape.rows * shape.outputs, kThreads));
  return cuda::Launch(&ScatterKernel, blocks, kThreads, cuda::CudaStream(stream), shape, table,
                      out);
}

int64_t ViewsBackwardF32Bytes(const Shape& shape) {
  return TableBytes(shape) +
         (shape.rows > kTableRows ? TiledBackwardInputBytes(shape) : BackwardInputWorkspace(shape));
}

absl::Status LaunchViewsBackwardF32(const ViewsBackwardF32& problem, void* workspace,
                                    StreamRef stream) {
  if (problem.grad_temb != nullptr) {
    RLK_RETURN_IF_ERROR(BackwardTemb(problem, workspace, stream));
  }
  if (problem.grad_weight != nullptr) {
    RLK_RETURN_IF_ERROR(LaunchTiledBackwardWeight({problem.shape,
                                                   problem.grad,
                                                   {DType::kF32, problem.a},
                                                   nullptr,
                                                   nullptr,
                                                   {DType::kF32, problem.grad_weight}},
                                                  stream));
  }
  if (problem.grad_bias == nullptr) return absl::OkStatus();
  Bf16BackwardWeight bias;
  bias.shape = problem.shape;
  bias.grad = problem.grad;
  bias.grad_bias = {DType::kF32, problem.grad_bias};
  return LaunchBf16BackwardWeight(bias, stream);
}

}  // namespace rlk::linear
