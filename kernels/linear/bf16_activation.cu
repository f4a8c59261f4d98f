#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/vector_access.cuh"
#include "kernels/linear/activation.cuh"
#include "kernels/linear/bf16_activation.h"
#include "kernels/linear/wgmma_epilogue.cuh"

namespace rlk::linear {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) ActivateKernel(Bf16Linear problem, const float* v) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= problem.shape.rows * problem.shape.outputs) return;
  const float y = DeviceActivate(problem.out.activation, v[i]);
  const int64_t row = i / problem.shape.outputs, channel = i - row * problem.shape.outputs;
  if (problem.out.f32) {
    float* const to = OutputElement<float>(problem, row, channel);
    if (to != nullptr) *to = y;
  } else {
    auto* const to = OutputElement<device::Bf16>(problem, row, channel);
    if (to != nullptr) *to = device::FromFloat<device::Bf16>(y);
  }
}

bool Plain(const Bf16Output& out) {
  return out.activation == Activation::kNone && out.pre == nullptr;
}

}  // namespace

int64_t ActivationScratchBytes(const Bf16Linear& problem) {
  if (Plain(problem.out) || problem.out.pre != nullptr) return 0;
  return problem.shape.rows * problem.shape.outputs * static_cast<int64_t>(sizeof(float));
}

absl::Status ForwardThenActivate(const Bf16Linear& problem, void* scratch, StreamRef stream,
                                 absl::FunctionRef<absl::Status(const Bf16Linear&)> forward) {
  if (Plain(problem.out)) return forward(problem);
  float* const v = problem.out.pre != nullptr ? problem.out.pre : static_cast<float*>(scratch);
  Bf16Linear linear = problem;
  linear.out = {};
  linear.out.views[0] = v;
  linear.out.f32 = true;
  RLK_RETURN_IF_ERROR(forward(linear));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                       cuda::GridBlocks(problem.shape.rows * problem.shape.outputs, kThreads));
  return cuda::Launch(&ActivateKernel, blocks, kThreads, cuda::CudaStream(stream), problem,
                      static_cast<const float*>(v));
}

}  // namespace rlk::linear
