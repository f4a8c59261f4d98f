#include "kernels/ops/det_linear/cuda_variants.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/linear/cuda.h"
#include "kernels/ops/det_linear/bf16.h"

namespace rlk {
namespace {

using det_linear::Kind;
using linear::Activation;

bool HasActivation(const KernelArgs& args) {
  return det_linear::ReadActivation(args) != Activation::kNone;
}

absl::Status Gradient(const KernelArgs& args, const float*& g) {
  const TensorView& grad_y = args.Input("grad_y");
  g = grad_y.as<float>();
  if (!HasActivation(args)) return absl::OkStatus();
  auto* const product = reinterpret_cast<float*>(args.workspace.data());
  RLK_RETURN_IF_ERROR(linear::LaunchGradient(det_linear::ReadActivation(args), g,
                                             args.Input("pre").as<float>(), grad_y.elements(),
                                             product, args.stream));
  g = product;
  return absl::OkStatus();
}

absl::Status Forward(const KernelArgs& args) {
  return linear::LaunchForwardFp32(det_linear::ReadFp32Forward(args), args.stream);
}

absl::Status BackwardInput(const KernelArgs& args) {
  linear::BackwardInput problem = det_linear::ReadBackwardInput(args);
  RLK_RETURN_IF_ERROR(Gradient(args, problem.g));
  return linear::LaunchBackwardInputFp32(
      problem, args.workspace.data() + det_linear::GradientBytes(args), args.stream);
}

absl::Status BackwardWeight(const KernelArgs& args) {
  linear::BackwardWeight problem = det_linear::ReadBackwardWeight(args);
  RLK_RETURN_IF_ERROR(Gradient(args, problem.g));
  return linear::LaunchBackwardWeightFp32(problem, args.stream);
}

int64_t BackwardInputBytes(const KernelArgs& args) {
  return det_linear::GradientBytes(args) +
         linear::BackwardInputWorkspace(det_linear::ReadShape(args, Kind::kBackwardInput));
}

absl::Status PortableActivation(const KernelArgs& args) {
  if (det_linear::ReadActivation(args) != Activation::kSiluCuda) return absl::OkStatus();
  return absl::FailedPreconditionError("activation silu_cuda has a variant of its own");
}

absl::Status CudaActivation(const KernelArgs& args) {
  if (det_linear::ReadActivation(args) == Activation::kSiluCuda) return absl::OkStatus();
  return absl::FailedPreconditionError("for activation silu_cuda only");
}

}  // namespace

std::vector<Variant> DetLinearCudaVariants(Kind kind) {
  Variant variant;
  variant.backend = Backend::kCuda;
  variant.capability_min = 80;
  switch (kind) {
    case Kind::kForward:
      variant.kernel = "det_linear_fp32_forward_cuda";
      variant.launch = &Forward;
      break;
    case Kind::kBackwardInput:
      variant.kernel = "det_linear_fp32_backward_input_cuda";
      variant.launch = &BackwardInput;
      variant.workspace_bytes = &BackwardInputBytes;
      break;
    case Kind::kBackwardWeight:
      variant.kernel = "det_linear_fp32_backward_weight_cuda";
      variant.launch = &BackwardWeight;
      variant.workspace_bytes = &det_linear::GradientBytes;
      break;
  }
  // The same kernels with CUDA's own SiLU, whose bits no other backend has.
  Variant provider = variant;
  variant.applicable = &PortableActivation;
  variant.contracts = {
      {det_linear::kFp32Contract, ClaimLevel::kL3Portable, {90}, ClaimLevel::kL1BatchInvariant}};
  provider.kernel += "_silu_cuda";
  provider.applicable = &CudaActivation;
  provider.contracts = {{det_linear::kFp32Contract,
                         ClaimLevel::kL1BatchInvariant,
                         {90},
                         ClaimLevel::kL1BatchInvariant}};
  return {std::move(variant), std::move(provider)};
}

}  // namespace rlk
