// The contracts of BF16 operands of det_linear: what their backends share.
#pragma once

#include "absl/status/status.h"
#include "kernels/linear/bf16_problem.h"
#include "kernels/ops/det_linear/det_linear.h"

namespace rlk::det_linear {

linear::Bf16Linear ReadBf16Forward(const KernelArgs& args);
// The gradient is grad_y itself: with an activation the caller replaces it by g.
linear::Bf16BackwardInput ReadBf16BackwardInput(const KernelArgs& args);
linear::Bf16BackwardWeight ReadBf16BackwardWeight(const KernelArgs& args);

// The source of g where it stands in memory, [T, N] in FP32.
linear::GradientSource GradientInMemory(const float* g, int64_t outputs);

// On CUDA: with an activation g [T, N] in FP32 stands first in the workspace, and replaces `grad`.
int64_t GradientBytes(const KernelArgs& args);
absl::Status ApplyActivation(const KernelArgs& args, linear::GradientSource& grad);

}  // namespace rlk::det_linear
