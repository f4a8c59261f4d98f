// The launchers of cuda_*.cu, by dtype of x.
#pragma once

#include "absl/status/status.h"
#include "kernels/registry/kernel_args.h"

namespace rlk::rms_norm {

absl::Status LaunchForwardF32(const KernelArgs& args);
absl::Status LaunchForwardF16(const KernelArgs& args);
absl::Status LaunchForwardBf16(const KernelArgs& args);
// grad_x, grad_gate and the row statistic, which the fold reads in the workspace.
absl::Status LaunchBackwardRowsF32(const KernelArgs& args);
absl::Status LaunchBackwardRowsF16(const KernelArgs& args);
absl::Status LaunchBackwardRowsBf16(const KernelArgs& args);
// grad_weight and dweight_acc.
absl::Status LaunchBackwardFoldF32(const KernelArgs& args);
absl::Status LaunchBackwardFoldF16(const KernelArgs& args);
absl::Status LaunchBackwardFoldBf16(const KernelArgs& args);

}  // namespace rlk::rms_norm
