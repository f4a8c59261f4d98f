// The linear by `wgmma`: which plan for how many rows.
#include <cstddef>

#include "kernels/cuda/stream.h"
#include "kernels/linear/bf16_activation.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/linear/bf16_forward_wgmma.cuh"
#include "kernels/linear/wgmma_launch.cuh"

namespace rlk::linear {
namespace {

template <typename P>
absl::Status LaunchPlan(const Bf16Linear& problem, const void* packed, const PackedShape& shape,
                        cudaStream_t stream) {
  return LaunchWgmma<P>(&Bf16ForwardWgmmaKernel<P>, problem, packed, shape, stream);
}

int64_t PackedBytes(const Shape& shape) {
  return (MmaPackedShape(shape.rows, shape.inputs).Elements() * 2 + 255) / 256 * 256;
}

}  // namespace

int64_t Bf16WgmmaBytes(const Bf16Linear& problem) {
  return PackedBytes(problem.shape) + ActivationScratchBytes(problem);
}

absl::Status LaunchBf16ForwardWgmma(const Bf16Linear& problem, void* workspace, StreamRef stream) {
  const PackedShape shape = MmaPackedShape(problem.shape.rows, problem.shape.inputs);
  const auto launch = shape.tile_rows == 8    ? &LaunchPlan<WgmmaPlan<8, 4, 6, 1>>
                      : shape.tile_rows == 16 ? &LaunchPlan<WgmmaPlan<16, 4, 6, 1>>
                      : shape.tile_rows == 32 ? &LaunchPlan<WgmmaPlan<32, 4, 5, 1>>
                      : shape.tile_rows == 64 ? &LaunchPlan<WgmmaPlan<64, 4, 5, 1>>
                                              : &LaunchPlan<WgmmaPlan<128, 3, 5, 1>>;
  return ForwardThenActivate(problem,
                             static_cast<std::byte*>(workspace) + PackedBytes(problem.shape),
                             stream, [&](const Bf16Linear& linear) {
                               return launch(linear, workspace, shape, cuda::CudaStream(stream));
                             });
}

}  // namespace rlk::linear
