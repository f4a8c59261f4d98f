// Backward of the linear for many rows, by tiles, FP32 or BF16 operands; internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

struct TiledBackwardInput {
  Shape shape;
  GradientSource grad;
  Operand weight;  // [N, K]
  Result grad_x;   // [T, K]
  // AdaLN: the sum times the gradient of silu at temb, in FP32. Null: the sum.
  const float* temb = nullptr;  // [T, K]
  SiluKind silu = SiluKind::kPortable;
};

// workspace: TiledBackwardInputBytes, aligned to 256.
int64_t TiledBackwardInputBytes(const Shape& shape);
absl::Status LaunchTiledBackwardInput(const TiledBackwardInput& problem, void* workspace,
                                      cudaStream_t stream);

// Without the bias.
struct TiledBackwardWeight {
  Shape shape;
  GradientSource grad;
  Operand x;                     // [T, K]
  const float* carry = nullptr;  // [N, K] or null
  float* accumulator = nullptr;  // [N, K] or null
  Result grad_weight;            // [N, K]
};

absl::Status LaunchTiledBackwardWeight(const TiledBackwardWeight& problem, cudaStream_t stream);

}  // namespace rlk::linear
