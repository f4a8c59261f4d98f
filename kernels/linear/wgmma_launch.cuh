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
  RLK_ASSIGN_OR_RETURN(
      const CUtensorMap weights,
      cuda::MatrixTiles(problem.weight, problem.shape.outputs, problem.shape.inputs,
                        problem.shape.inputs, P::kOutputs / P::kShare));
  const int64_t items = (problem.shape.outputs + P::kOutputs - 1) / P::kOutputs *
                        ((shape.tiles + P::kShare - 1) / P::kShare);
  const auto workers = std::min<int64_t>(device.multiprocessors / P::kShare, items);
  return cuda::LaunchWith(kernel,
                          {.blocks = static_cast<unsigned>(workers * P::kShare),
                           .threads = P::kThreads,
                           .cluster = P::kShare,
                           .shared_bytes = P::kSharedBytes,
                           .starts_early = true},
                          stream, weights, problem, static_cast<const std::byte*>(packed), shape);
}

}  // namespace rlk::linear
