#include <cstddef>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/bf16_activation.h"
#include "kernels/linear/bf16_forward.cuh"
#include "kernels/linear/k128_cuda.h"
#include "kernels/linear/k128_fold.cuh"
#include "kernels/linear/k128_forward.cuh"
#include "kernels/linear/wgmma_launch.cuh"
#include "kernels/linear/workspace.h"

namespace rlk::linear {
namespace {

constexpr int kFoldThreads = 256;

struct K128Kernel {
  template <typename P>
  static WgmmaKernel Of() {
    return &K128ForwardKernel<P>;
  }
};

// One thread an output: (p0 + p1) + (p2 + p3), then the epilogue.
__global__ void __launch_bounds__(kFoldThreads)
    FoldForwardKernel(Bf16Linear problem, const float* partial, int64_t parts) {
  const int64_t elements = problem.shape.rows * problem.shape.outputs;
  const int64_t i = int64_t{blockIdx.x} * kFoldThreads + threadIdx.x;
  if (i >= elements) return;
  const float sum = FoldParts(partial, elements, i, parts);
  ChannelWriter(problem, i % problem.shape.outputs).Write(i / problem.shape.outputs, sum);
}

int64_t PackedBytes(const Shape& shape) {
  return AlignWorkspace(K128PackedShape(shape.rows, shape.inputs).Elements() * 2);
}

}  // namespace

int64_t K128ForwardBytes(const Bf16Linear& problem, int64_t parts) {
  const Shape& shape = problem.shape;
  if (parts == 1) return PackedBytes(shape) + ActivationScratchBytes(problem);
  return PackedBytes(shape) + parts * shape.rows * shape.outputs * 4;
}

absl::Status LaunchK128ForwardWgmma(const Bf16Linear& problem, int64_t parts, void* workspace,
                                    StreamRef stream) {
  const cudaStream_t on = cuda::CudaStream(stream);
  PackedShape shape = K128PackedShape(problem.shape.rows, problem.shape.inputs);
  auto* const partial =
      reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + PackedBytes(problem.shape));
  if (parts == 1) {
    return ForwardThenActivate(problem, partial, stream, [&](const Bf16Linear& linear) {
      return LaunchWgmmaForRows<K128Kernel>(linear, workspace, shape, on);
    });
  }
  const int64_t elements = problem.shape.rows * problem.shape.outputs;
  shape.stages = shape.all_stages / parts;
  for (int64_t part = 0; part < parts; ++part) {
    Bf16Linear sum = problem;
    sum.bias = nullptr;
    sum.out = {};
    sum.out.views[0] = partial + part * elements;
    sum.out.f32 = true;
    shape.first = part * shape.stages;
    RLK_RETURN_IF_ERROR(LaunchWgmmaForRows<K128Kernel>(sum, workspace, shape, on));
  }
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(elements, kFoldThreads));
  return cuda::Launch(&FoldForwardKernel, blocks, kFoldThreads, on, problem,
                      static_cast<const float*>(partial), parts);
}

}  // namespace rlk::linear
