// g of a backward with an activation, in FP32.
#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/bf16_gradient.cuh"

namespace rlk::linear {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    GradientKernel(Activation activation, Operand grad_y, const float* pre, int64_t elements,
                   float* g) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const float grad = grad_y.dtype == DType::kF32
                         ? static_cast<const float*>(grad_y.data)[i]
                         : arith::Bf16ToFloat(static_cast<const uint16_t*>(grad_y.data)[i]);
  g[i] = DeviceActivationVjp(activation, grad, pre[i]);
}

}  // namespace

absl::Status LaunchBf16Gradient(Activation activation, const Operand& grad_y, const float* pre,
                                int64_t elements, float* g, StreamRef stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(elements, kThreads));
  return cuda::Launch(&GradientKernel, blocks, kThreads, cuda::CudaStream(stream), activation,
                      grad_y, pre, elements, g);
}

}  // namespace rlk::linear
