// Contract bf16-k128-v1 on compute capability 9.0.
#include "kernels/ops/det_linear/k128_cuda_variants.h"

#include <cstddef>

#include "kernels/core/status.h"
#include "kernels/linear/k128_cuda.h"
#include "kernels/linear/k128_few_rows.h"
#include "kernels/ops/det_linear/bf16.h"

namespace rlk::det_linear {
namespace {

int64_t ForwardBytes(const KernelArgs& args) {
  return linear::K128ForwardBytes(ReadBf16Forward(args), ReadFoldParts(args, Kind::kForward));
}

absl::Status Forward(const KernelArgs& args) {
  const linear::Bf16Linear problem = ReadBf16Forward(args);
  RLK_RETURN_IF_ERROR(linear::LaunchK128Pack(problem.x, problem.shape.rows, problem.shape.inputs,
                                             reinterpret_cast<uint16_t*>(args.workspace.data()),
                                             args.stream));
  return linear::LaunchK128ForwardWgmma(problem, ReadFoldParts(args, Kind::kForward),
                                        args.workspace.data(), args.stream);
}

// With an activation the gradient is g, in FP32.
linear::GradientSource Gradient(const KernelArgs& args, linear::GradientSource grad) {
  if (ReadActivation(args) != linear::Activation::kNone)
    grad = GradientInMemory(nullptr, grad.outputs);
  return grad;
}

int64_t BackwardInputBytes(const KernelArgs& args) {
  const linear::Bf16BackwardInput problem = ReadBf16BackwardInput(args);
  return GradientBytes(args) +
         linear::K128GradientBytes(Gradient(args, problem.grad), problem.shape.rows) +
         linear::K128BackwardInputBytes(problem.shape, ReadFoldParts(args, Kind::kBackwardInput));
}

absl::Status BackwardInput(const KernelArgs& args) {
  linear::Bf16BackwardInput problem = ReadBf16BackwardInput(args);
  if (problem.grad_x.data == nullptr) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(ApplyActivation(args, problem.grad));
  std::byte* const workspace = args.workspace.data() + GradientBytes(args);
  linear::K128Gradient grad;
  RLK_RETURN_IF_ERROR(
      linear::PrepareK128Gradient(problem.grad, problem.shape.rows, workspace, args.stream, grad));
  return linear::LaunchK128BackwardInput(
      problem, grad, ReadFoldParts(args, Kind::kBackwardInput),
      workspace + linear::K128GradientBytes(problem.grad, problem.shape.rows), args.stream);
}

int64_t BackwardWeightBytes(const KernelArgs& args) {
  const linear::Bf16BackwardWeight problem = ReadBf16BackwardWeight(args);
  return GradientBytes(args) +
         linear::K128GradientBytes(Gradient(args, problem.grad), problem.shape.rows);
}

absl::Status BackwardWeight(const KernelArgs& args) {
  linear::Bf16BackwardWeight problem = ReadBf16BackwardWeight(args);
  RLK_RETURN_IF_ERROR(ApplyActivation(args, problem.grad));
  linear::K128Gradient grad;
  if (!linear::K128FewRows(problem)) {
    RLK_RETURN_IF_ERROR(linear::PrepareK128Gradient(problem.grad, problem.shape.rows,
                                                    args.workspace.data() + GradientBytes(args),
                                                    args.stream, grad));
  }
  return linear::LaunchK128BackwardWeight(problem, grad, args.stream);
}

}  // namespace

Variant K128CudaVariant(Kind kind) {
  Variant variant;
  variant.backend = Backend::kCudaSm90;
  variant.contracts = {
      {kK128Contract, ClaimLevel::kL3Portable, {90}, ClaimLevel::kL1BatchInvariant}};
  variant.capability_min = variant.capability_max = 90;
  variant.needs_step_law = true;
  switch (kind) {
    case Kind::kForward:
      variant.kernel = "det_linear_k128_forward_wgmma";
      variant.launch = &Forward;
      variant.workspace_bytes = &ForwardBytes;
      break;
    case Kind::kBackwardInput:
      variant.kernel = "det_linear_k128_backward_input_wgmma";
      variant.launch = &BackwardInput;
      variant.workspace_bytes = &BackwardInputBytes;
      break;
    case Kind::kBackwardWeight:
      variant.kernel = "det_linear_k128_backward_weight_wgmma";
      variant.launch = &BackwardWeight;
      variant.workspace_bytes = &BackwardWeightBytes;
      break;
  }
  return variant;
}

}  // namespace rlk::det_linear
