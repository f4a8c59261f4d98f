// The linear by `wgmma`: which plan for how many rows.
#include <cstddef>

#include "kernels/cuda/stream.h"
#include "kernels/linear/bf16_activation.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/linear/bf16_forward_wgmma.cuh"
#include "kernels/linear/wgmma_launch.cuh"
#include "kernels/linear/workspace.h"

namespace rlk::linear {
namespace {

struct MmaKernel {
  template <typename P>
  static WgmmaKernel Of() {
    return &Bf16ForwardWgmmaKernel<P>;
  }
};

int64_t PackedBytes(const Shape& shape) {
  return AlignWorkspace(MmaPackedShape(shape.rows, shape.inputs).Elements() * 2);
}

}  // namespace

int64_t Bf16WgmmaBytes(const Bf16Linear& problem) {
  return PackedBytes(problem.shape) + ActivationScratchBytes(problem);
}

absl::Status LaunchBf16ForwardWgmma(const Bf16Linear& problem, void* workspace, StreamRef stream) {
  const PackedShape shape = MmaPackedShape(problem.shape.rows, problem.shape.inputs);
  const cudaStream_t on = cuda::CudaStream(stream);
  return ForwardThenActivate(problem,
                             static_cast<std::byte*>(workspace) + PackedBytes(problem.shape),
                             stream, [&](const Bf16Linear& linear) {
                               return LaunchWgmmaForRows<MmaKernel>(linear, workspace, shape, on);
                             });
}

}  // namespace rlk::linear
