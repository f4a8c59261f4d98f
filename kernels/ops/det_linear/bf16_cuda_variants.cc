#include "kernels/ops/det_linear/bf16_cuda_variants.h"

#include <cstddef>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/ops/det_linear/bf16.h"

namespace rlk {
namespace {

using det_linear::Kind;
using linear::Activation;

// Up to here one pass of `mma.sync` is as fast as the weights can be read.
constexpr int64_t kMmaRows = 8;

absl::Status ForwardMma(const KernelArgs& args) {
  return linear::LaunchBf16ForwardMma(det_linear::ReadBf16Forward(args), args.stream);
}

// CUDA's own SiLU has variants of its own: no other backend has its bits.
template <bool kSiluCuda>
absl::Status ForActivation(const KernelArgs& args) {
  const bool silu_cuda = det_linear::ReadActivation(args) == Activation::kSiluCuda;
  if (silu_cuda == kSiluCuda) return absl::OkStatus();
  return absl::FailedPreconditionError(kSiluCuda ? "for activation silu_cuda only"
                                                 : "activation silu_cuda has a variant of its own");
}

template <bool kSiluCuda>
absl::Status ForManyRows(const KernelArgs& args) {
  RLK_RETURN_IF_ERROR(ForActivation<kSiluCuda>(args));
  if (args.Input("x").shape[0] > kMmaRows) return absl::OkStatus();
  return absl::FailedPreconditionError("for more than 8 rows");
}

int64_t PackedBytes(const KernelArgs& args) {
  const linear::Shape shape = det_linear::ReadShape(args, Kind::kForward);
  return linear::Bf16PackedElements(shape.rows, shape.inputs) *
         static_cast<int64_t>(sizeof(uint16_t));
}

absl::Status ForwardWgmma(const KernelArgs& args) {
  const linear::Bf16Linear problem = det_linear::ReadBf16Forward(args);
  auto* packed = reinterpret_cast<uint16_t*>(args.workspace.data());
  RLK_RETURN_IF_ERROR(linear::LaunchBf16Pack(problem.x, problem.shape.rows, problem.shape.inputs,
                                             packed, args.stream));
  return linear::LaunchBf16ForwardWgmma(problem, packed, args.stream);
}

// g [T, N] in FP32 stands first in the workspace, where there is an activation.
int64_t GradientBytes(const KernelArgs& args) {
  if (det_linear::ReadActivation(args) == Activation::kNone) return 0;
  const int64_t bytes = args.Input("grad_y").elements() * static_cast<int64_t>(sizeof(float));
  return (bytes + 255) / 256 * 256;
}

template <typename Problem>
absl::Status ApplyActivation(const KernelArgs& args, Problem& problem) {
  const Activation activation = det_linear::ReadActivation(args);
  if (activation == Activation::kNone) return absl::OkStatus();
  auto* g = reinterpret_cast<float*>(args.workspace.data());
  const TensorView& grad_y = args.Input("grad_y");
  problem.grad = det_linear::GradientInMemory(g, problem.shape.outputs);
  return linear::LaunchBf16Gradient(activation, det_linear::OperandOf(grad_y),
                                    args.Input("pre").as<float>(), grad_y.elements(), g,
                                    args.stream);
}

int64_t BackwardInputBytes(const KernelArgs& args) {
  return GradientBytes(args) +
         linear::Bf16BackwardInputBytes(det_linear::ReadShape(args, Kind::kBackwardInput));
}

absl::Status BackwardInput(const KernelArgs& args) {
  linear::Bf16BackwardInput problem = det_linear::ReadBf16BackwardInput(args);
  if (problem.grad_x.data == nullptr) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(ApplyActivation(args, problem));
  return linear::LaunchBf16BackwardInput(problem, args.workspace.data() + GradientBytes(args),
                                         args.stream);
}

absl::Status BackwardWeight(const KernelArgs& args) {
  linear::Bf16BackwardWeight problem = det_linear::ReadBf16BackwardWeight(args);
  RLK_RETURN_IF_ERROR(ApplyActivation(args, problem));
  return linear::LaunchBf16BackwardWeight(problem, args.stream);
}

Variant MakeVariant(Backend backend, const char* kernel, LaunchFn launch) {
  Variant variant;
  variant.backend = backend;
  variant.kernel = kernel;
  variant.contracts = {{det_linear::kBf16Contract,
                        ClaimLevel::kL1BatchInvariant,
                        {90},
                        ClaimLevel::kL1BatchInvariant}};
  variant.capability_min = 80;
  variant.needs_step_law = true;
  variant.launch = launch;
  return variant;
}

// The variant for portable activations and that for silu_cuda.
void AddBoth(Variant variant, absl::Status (*portable)(const KernelArgs&),
             absl::Status (*silu_cuda)(const KernelArgs&), std::vector<Variant>& variants) {
  variant.applicable = portable;
  variants.push_back(variant);
  variant.kernel += "_silu_cuda";
  variant.applicable = silu_cuda;
  variants.push_back(std::move(variant));
}

}  // namespace

std::vector<Variant> DetLinearBf16CudaVariants(Kind kind) {
  std::vector<Variant> variants;
  if (kind == Kind::kForward) {
    Variant wgmma = MakeVariant(Backend::kCudaSm90, "det_linear_bf16_forward_wgmma", &ForwardWgmma);
    wgmma.capability_min = wgmma.capability_max = 90;
    wgmma.workspace_bytes = &PackedBytes;
    AddBoth(std::move(wgmma), &ForManyRows<false>, &ForManyRows<true>, variants);
    AddBoth(MakeVariant(Backend::kCuda, "det_linear_bf16_forward_mma", &ForwardMma),
            &ForActivation<false>, &ForActivation<true>, variants);
    return variants;
  }
  const bool input = kind == Kind::kBackwardInput;
  Variant variant = MakeVariant(
      Backend::kCuda,
      input ? "det_linear_bf16_backward_input_cuda" : "det_linear_bf16_backward_weight_cuda",
      input ? &BackwardInput : &BackwardWeight);
  variant.workspace_bytes = input ? &BackwardInputBytes : &GradientBytes;
  AddBoth(std::move(variant), &ForActivation<false>, &ForActivation<true>, variants);
  return variants;
}

}  // namespace rlk
