// The deterministic linear on CUDA. Everything is enqueued on the stream; pointers are device
// memory, contiguous and aligned to 16 bytes. kSiluCuda is allowed.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/linear/problem.h"

namespace rlk::linear {

// How a launch stands to the one before it on the stream.
enum class Overlap {
  kNone,
  // It may begin before its predecessor ends, and waits for it before it reads x. The predecessor
  // must not write weight or bias, nor read or write what this one writes.
  kBeginEarly,
};

absl::Status LaunchForwardFp32(const Fp32Forward& problem, StreamRef stream,
                               Overlap overlap = Overlap::kNone);

// g and weight, or x, in FP32. workspace has BackwardInputWorkspace(shape) bytes, aligned to 256.
int64_t BackwardInputWorkspace(const Shape& shape);
absl::Status LaunchBackwardInputFp32(const BackwardInput& problem, void* workspace,
                                     StreamRef stream);
absl::Status LaunchBackwardWeightFp32(const BackwardWeight& problem, StreamRef stream);

// y[i] = activation(v[i]); g[i] = grad_y[i] times activation'(pre[i]), in place if they are one.
absl::Status LaunchActivate(Activation activation, const float* v, int64_t elements, float* y,
                            StreamRef stream);
absl::Status LaunchGradient(Activation activation, const float* grad_y, const float* pre,
                            int64_t elements, float* g, StreamRef stream);

}  // namespace rlk::linear
