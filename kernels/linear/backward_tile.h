// Backward of the linear for many rows, by tiles, FP32 or BF16 operands; internal to this folder.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
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
                                      StreamRef stream);

// Without the bias.
struct TiledBackwardWeight {
  Shape shape;
  GradientSource grad;
  Operand x;                     // [T, K]
  const float* carry = nullptr;  // [N, K] or null
  float* accumulator = nullptr;  // [N, K] or null
  Result grad_weight;            // [N, K]
};

absl::Status LaunchTiledBackwardWeight(const TiledBackwardWeight& problem, StreamRef stream);

}  // namespace rlk::linear
