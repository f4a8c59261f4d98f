#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/cuda.h"
#include "kernels/linear/fma_backward.cuh"

namespace rlk::linear {
namespace {

// Up to here the weights are read once, and the partial sums of the chunks cost little.
constexpr int64_t kFewRows = 8;
constexpr int64_t kGridYMax = 65535;

int64_t Chunks(const Shape& shape) { return (shape.outputs + kBackwardChunk - 1) / kBackwardChunk; }

bool FewRows(const Shape& shape) { return shape.rows <= kFewRows && Chunks(shape) <= kGridYMax; }

template <typename... Params, typename... Args>
absl::Status LaunchGrid(void (*kernel)(Params...), int64_t columns, int64_t rows, unsigned threads,
                        cudaStream_t stream, Args... args) {
  RLK_ASSIGN_OR_RETURN(const unsigned x, cuda::GridBlocks(columns, 1));
  if (rows > kGridYMax) return absl::InternalError("det_linear: more rows than a grid has");
  return [&](Params... params) {
    void* pointers[] = {&params...};
    RLK_CUDA_RETURN_IF_ERROR(cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                                              dim3(x, static_cast<unsigned>(rows)), dim3(threads),
                                              pointers, 0, stream));
    return absl::OkStatus();
  }(args...);
}

// g [T, N] of a table.
GradientSource TableOf(const float* g, int64_t outputs) {
  GradientSource grad;
  grad.views[0] = g;
  grad.outputs = outputs;
  return grad;
}

absl::Status LaunchPartials(const BackwardInputPointers& p, cudaStream_t stream) {
  const int64_t columns = (p.shape.inputs + 127) / 128, chunks = Chunks(p.shape);
  const auto kernel = p.shape.rows == 1   ? PartialGradXKernel<1>
                      : p.shape.rows == 2 ? PartialGradXKernel<2>
                      : p.shape.rows <= 4 ? PartialGradXKernel<4>
                                          : PartialGradXKernel<8>;
  RLK_RETURN_IF_ERROR(LaunchGrid(kernel, columns, chunks, 32, stream, p));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(p.shape.rows * p.shape.inputs, 128));
  return cuda::Launch(FoldPartialsKernel, blocks, 128, stream, p, chunks);
}

}  // namespace

int64_t BackwardInputWorkspace(const Shape& shape) {
  if (!FewRows(shape)) return TiledBackwardInputBytes(shape);
  return Chunks(shape) * shape.rows * shape.inputs * static_cast<int64_t>(sizeof(float));
}

absl::Status LaunchBackwardInputFp32(const BackwardInput& problem, void* workspace,
                                     StreamRef stream) {
  if (problem.grad_x.data == nullptr) return absl::OkStatus();
  BackwardInputPointers p = {};
  p.shape = problem.shape;
  p.g = problem.g;
  p.weight = static_cast<const float*>(problem.weight.data);
  p.partial = static_cast<float*>(workspace);
  p.grad_x = static_cast<float*>(problem.grad_x.data);
  const cudaStream_t on = cuda::CudaStream(stream);
  if (FewRows(problem.shape)) return LaunchPartials(p, on);
  TiledBackwardInput tiled;
  tiled.shape = problem.shape;
  tiled.grad = TableOf(problem.g, problem.shape.outputs);
  tiled.weight = problem.weight;
  tiled.grad_x = problem.grad_x;
  return LaunchTiledBackwardInput(tiled, workspace, stream);
}

absl::Status LaunchBackwardWeightFp32(const BackwardWeight& problem, StreamRef stream) {
  const cudaStream_t on = cuda::CudaStream(stream);
  const Shape& shape = problem.shape;
  if (problem.grad_weight.data != nullptr || problem.weight_acc != nullptr) {
    RLK_RETURN_IF_ERROR(
        LaunchTiledBackwardWeight({shape, TableOf(problem.g, shape.outputs), problem.x,
                                   problem.weight_carry, problem.weight_acc, problem.grad_weight},
                                  stream));
  }
  auto* const grad_bias = static_cast<float*>(problem.grad_bias.data);
  if (grad_bias == nullptr && problem.bias_acc == nullptr) return absl::OkStatus();
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(shape.outputs, 128));
  return cuda::Launch(GradBiasKernel, blocks, 128, on, problem.g, shape.rows, shape.outputs,
                      problem.bias_carry, grad_bias, problem.bias_acc);
}

absl::Status LaunchActivate(Activation activation, const float* v, int64_t elements, float* y,
                            StreamRef stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(elements, 256));
  return cuda::Launch(ActivateKernel, blocks, 256, cuda::CudaStream(stream), activation, v,
                      elements, y);
}

absl::Status LaunchGradient(Activation activation, const float* grad_y, const float* pre,
                            int64_t elements, float* g, StreamRef stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(elements, 256));
  return cuda::Launch(GradientKernel, blocks, 256, cuda::CudaStream(stream), activation, grad_y,
                      pre, elements, g);
}

}  // namespace rlk::linear
