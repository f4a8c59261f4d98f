// Launches a forward kernel of a WgmmaPlan.
#pragma once

#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/linear/bf16_problem.h"
#include "kernels/linear/wgmma_feed.cuh"

namespace rlk::linear {

using WgmmaKernel = void (*)(CUtensorMap, Bf16Linear, const std::byte*, PackedShape);

template <typename P>
absl::Status LaunchWgmma(WgmmaKernel kernel, const Bf16Linear& problem, const void* packed,
                         const PackedShape& shape, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  RLK_ASSIGN_OR_RETURN(const CUtensorMap weights,
                       cuda::MatrixTiles(problem.weight, problem.shape.outputs,
                                         problem.shape.inputs, problem.shape.inputs, P::kOutputs));
  const int64_t items = (problem.shape.outputs + P::kOutputs - 1) / P::kOutputs * shape.tiles;
  return cuda::LaunchWith(
      kernel,
      {.blocks = static_cast<unsigned>(std::min<int64_t>(device.multiprocessors, items)),
       .threads = P::kThreads,
       .shared_bytes = P::kSharedBytes,
       .starts_early = true},
      stream, weights, problem, static_cast<const std::byte*>(packed), shape);
}

// By the plan for so many rows; Kernel::Of<P>() is the kernel of a plan.
template <typename Kernel>
absl::Status LaunchWgmmaForRows(const Bf16Linear& problem, const void* packed,
                                const PackedShape& shape, cudaStream_t stream) {
  const auto launch = [&]<typename P>(P) {
    return LaunchWgmma<P>(Kernel::template Of<P>(), problem, packed, shape, stream);
  };
  switch (shape.tile_rows) {
    case 8:
      return launch(WgmmaPlan<8, 4, 6>());
    case 16:
      return launch(WgmmaPlan<16, 4, 6>());
    case 32:
      return launch(WgmmaPlan<32, 4, 5>());
    case 64:
      return launch(WgmmaPlan<64, 4, 5>());
    default:
      return launch(WgmmaPlan<128, 3, 5>());
  }
}

}  // namespace rlk::linear
