// Tiled products of the backward for many rows, without tensor cores: the same FMA chains.
#pragma once

#include "absl/status/status.h"
#include "kernels/linear/bf16_cuda.h"

typedef struct CUstream_st* cudaStream_t;

namespace rlk::linear {

absl::Status LaunchTiledBackwardInput(const Bf16BackwardInput& problem, cudaStream_t stream);
absl::Status LaunchTiledBackwardWeight(const Bf16BackwardWeight& problem, cudaStream_t stream);

}  // namespace rlk::linear
