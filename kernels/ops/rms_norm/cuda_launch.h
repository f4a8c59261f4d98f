// The launchers of cuda_*.cu, by dtype of x.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/kernel_args.h"

namespace rlk::rms_norm {

absl::Status LaunchForwardF32(const KernelArgs& args);
absl::Status LaunchForwardF16(const KernelArgs& args);
absl::Status LaunchForwardBf16(const KernelArgs& args);
// The whole backward in fewer passes, where it applies; otherwise false, and nothing is done.
absl::StatusOr<bool> LaunchBackwardNarrowF32(const KernelArgs& args);
absl::StatusOr<bool> LaunchBackwardNarrowF16(const KernelArgs& args);
absl::StatusOr<bool> LaunchBackwardNarrowBf16(const KernelArgs& args);
absl::StatusOr<bool> LaunchBackwardClusterF16(const KernelArgs& args);
absl::StatusOr<bool> LaunchBackwardClusterBf16(const KernelArgs& args);
// grad_x, grad_gate and the row statistic, which the fold reads in the workspace.
absl::Status LaunchBackwardRowsF32(const KernelArgs& args);
absl::Status LaunchBackwardRowsF16(const KernelArgs& args);
absl::Status LaunchBackwardRowsBf16(const KernelArgs& args);
// grad_weight and dweight_acc.
absl::Status LaunchBackwardFoldF32(const KernelArgs& args);
absl::Status LaunchBackwardFoldF16(const KernelArgs& args);
absl::Status LaunchBackwardFoldBf16(const KernelArgs& args);

}  // namespace rlk::rms_norm
