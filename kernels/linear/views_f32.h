// FP32 weights behind the views of AdaLN, on CUDA: the FP32 linear, with its output and the
// gradient of it laid out as in Bf16Output. All pointers are device memory.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

// table [T, N] into the views of `out`, all FP32; null ones are left out.
absl::Status LaunchScatterViews(const Shape& shape, const float* table, const Bf16Output& out,
                                StreamRef stream);

struct ViewsBackwardF32 {
  Shape shape;
  GradientSource grad;
  const float* weight = nullptr;  // [N, K]
  const float* a = nullptr;       // silu(temb), [T, K]
  const float* temb = nullptr;    // [T, K]
  SiluKind silu = SiluKind::kPortable;
  float* grad_temb = nullptr;    // [T, K] or null
  float* grad_weight = nullptr;  // [N, K] or null
  float* grad_bias = nullptr;    // [N] or null
};

// workspace: ViewsBackwardF32Bytes, aligned to 256. `a` is read for grad_weight alone.
int64_t ViewsBackwardF32Bytes(const Shape& shape);
absl::Status LaunchViewsBackwardF32(const ViewsBackwardF32& problem, void* workspace,
                                    StreamRef stream);

}  // namespace rlk::linear
