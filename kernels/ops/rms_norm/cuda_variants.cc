#include "kernels/ops/rms_norm/cuda_variants.h"

#include <utility>

#include "kernels/core/status.h"
#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rms_norm/workspace.h"

namespace rlk {
namespace {

absl::Status Forward(const KernelArgs& args) {
  switch (args.Input("x").dtype) {
    case DType::kF16:
      return rms_norm::LaunchForwardF16(args);
    case DType::kBF16:
      return rms_norm::LaunchForwardBf16(args);
    default:
      return rms_norm::LaunchForwardF32(args);
  }
}

// The launchers of one dtype. A kernel in fewer passes is taken where it applies; all give the same
// bits.
struct BackwardLaunchers {
  absl::StatusOr<bool> (*narrow)(const KernelArgs&);
  absl::StatusOr<bool> (*cluster)(const KernelArgs&);  // may be null
  absl::Status (*rows)(const KernelArgs&);
  absl::Status (*fold)(const KernelArgs&);
};

BackwardLaunchers LaunchersOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {&rms_norm::LaunchBackwardNarrowF16, &rms_norm::LaunchBackwardClusterF16,
              &rms_norm::LaunchBackwardRowsF16, &rms_norm::LaunchBackwardFoldF16};
    case DType::kBF16:
      return {&rms_norm::LaunchBackwardNarrowBf16, &rms_norm::LaunchBackwardClusterBf16,
              &rms_norm::LaunchBackwardRowsBf16, &rms_norm::LaunchBackwardFoldBf16};
    default:
      return {&rms_norm::LaunchBackwardNarrowF32, nullptr, &rms_norm::LaunchBackwardRowsF32,
              &rms_norm::LaunchBackwardFoldF32};
  }
}

absl::Status Backward(const KernelArgs& args) {
  const BackwardLaunchers launchers = LaunchersOf(args.Input("x").dtype);
  RLK_ASSIGN_OR_RETURN(bool done, launchers.narrow(args));
  if (!done && launchers.cluster != nullptr) {
    RLK_ASSIGN_OR_RETURN(done, launchers.cluster(args));
  }
  if (done) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(launchers.rows(args));
  return launchers.fold(args);
}

int64_t BackwardWorkspace(const KernelArgs& args) {
  const rms_norm::Problem problem = rms_norm::ReadProblem(args);
  return rms_norm::StatisticBytes(problem) + rms_norm::PartialBytes(problem) +
         rms_norm::TermBytes(problem) + rms_norm::SumBytes(problem);
}

}  // namespace

std::vector<Variant> RmsNormCudaVariants(const std::vector<Contract>& contracts, bool backward) {
  Variant variant;
  variant.backend = Backend::kCuda;
  variant.kernel = backward ? "rms_norm_backward_cuda" : "rms_norm_forward_cuda";
  for (const Contract& contract : contracts) {
    if (contract.id.ends_with("/golden-f64")) continue;
    variant.contracts.push_back(
        {contract.id, ClaimLevel::kL3Portable, {90}, ClaimLevel::kL1BatchInvariant});
  }
  variant.capability_min = 80;
  variant.launch = backward ? &Backward : &Forward;
  if (backward) variant.workspace_bytes = &BackwardWorkspace;
  return {std::move(variant)};
}

}  // namespace rlk
