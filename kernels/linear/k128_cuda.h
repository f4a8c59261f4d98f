// Contract bf16-k128-v1 on compute capability 9.0, by `wgmma`. All pointers are device memory.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

// `parts`: of the reduction, 1, 2 or 4. workspace: K128ForwardBytes, aligned to 256; it begins with
// what LaunchK128Pack made of x in the launch ahead on the stream, before whose end the kernel
// begins; x itself is not read.
int64_t K128ForwardBytes(const Bf16Linear& problem, int64_t parts);
absl::Status LaunchK128ForwardWgmma(const Bf16Linear& problem, int64_t parts, void* workspace,
                                    StreamRef stream);
absl::Status LaunchK128Pack(const uint16_t* x, int64_t rows, int64_t inputs, uint16_t* packed,
                            StreamRef stream);

// The gradient as the backward reads it: BF16 [rows, outputs], rows `stride` elements apart; of one
// in FP32 its three exact parts, the smallest first.
struct K128Gradient {
  const uint16_t* term[3] = {};
  int terms = 1;
  int64_t rows = 0, outputs = 0, stride = 0;
};
// workspace: K128GradientBytes, aligned to 256 and a multiple of it; it lives as long as
// `prepared`.
int64_t K128GradientBytes(const GradientSource& grad, int64_t rows);
absl::Status PrepareK128Gradient(const GradientSource& grad, int64_t rows, void* workspace,
                                 StreamRef stream, K128Gradient& prepared);

// `grad` stands for the problem's own. workspace: K128BackwardInputBytes, aligned to 256.
int64_t K128BackwardInputBytes(const Shape& shape, int64_t parts);
absl::Status LaunchK128BackwardInput(const Bf16BackwardInput& problem, const K128Gradient& grad,
                                     int64_t parts, void* workspace, StreamRef stream);
// The problem's own gradient is read for grad_bias; where K128FewRows, for all.
absl::Status LaunchK128BackwardWeight(const Bf16BackwardWeight& problem, const K128Gradient& grad,
                                      StreamRef stream);

}  // namespace rlk::linear
