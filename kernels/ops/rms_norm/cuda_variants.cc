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

absl::Status Backward(const KernelArgs& args) {
  switch (args.Input("x").dtype) {
    case DType::kF16:
      RLK_RETURN_IF_ERROR(rms_norm::LaunchBackwardRowsF16(args));
      return rms_norm::LaunchBackwardFoldF16(args);
    case DType::kBF16:
      RLK_RETURN_IF_ERROR(rms_norm::LaunchBackwardRowsBf16(args));
      return rms_norm::LaunchBackwardFoldBf16(args);
    default:
      RLK_RETURN_IF_ERROR(rms_norm::LaunchBackwardRowsF32(args));
      return rms_norm::LaunchBackwardFoldF32(args);
  }
}

int64_t BackwardWorkspace(const KernelArgs& args) {
  const rms_norm::Problem problem = rms_norm::ReadProblem(args);
  return rms_norm::StatisticBytes(problem) + rms_norm::PartialBytes(problem);
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
