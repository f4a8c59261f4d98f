#include "kernels/ops/det_linear/bf16_cuda_variants.h"

#include <cstddef>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/linear/cublaslt.h"
#include "kernels/linear/shared_memory.h"
#include "kernels/ops/det_linear/bf16.h"
#include "kernels/ops/det_linear/k128_cuda_variants.h"

namespace rlk {
namespace {

using det_linear::Kind;
using linear::Activation;

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

int64_t WgmmaBytes(const KernelArgs& args) {
  return linear::Bf16WgmmaBytes(det_linear::ReadBf16Forward(args));
}

absl::Status ForwardWgmma(const KernelArgs& args) {
  const linear::Bf16Linear problem = det_linear::ReadBf16Forward(args);
  RLK_RETURN_IF_ERROR(linear::LaunchBf16Pack(problem.x, problem.shape.rows, problem.shape.inputs,
                                             reinterpret_cast<uint16_t*>(args.workspace.data()),
                                             args.stream));
  return linear::LaunchBf16ForwardWgmma(problem, args.workspace.data(), args.stream);
}

absl::Status ForWitness(const KernelArgs& args) {
  if (det_linear::ReadActivation(args) != Activation::kNone) {
    return absl::FailedPreconditionError("without an activation only");
  }
  if (args.Output("pre").present()) return absl::FailedPreconditionError("does not give pre");
  return absl::OkStatus();
}

absl::Status ForwardWitness(const KernelArgs& args) {
  return linear::LaunchCublasLt(det_linear::ReadBf16Forward(args), args.stream);
}

int64_t BackwardInputBytes(const KernelArgs& args) {
  return det_linear::GradientBytes(args) +
         linear::Bf16BackwardInputBytes(det_linear::ReadShape(args, Kind::kBackwardInput));
}

absl::Status BackwardInput(const KernelArgs& args) {
  linear::Bf16BackwardInput problem = det_linear::ReadBf16BackwardInput(args);
  if (problem.grad_x.data == nullptr) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(det_linear::ApplyActivation(args, problem.grad));
  return linear::LaunchBf16BackwardInput(
      problem, args.workspace.data() + det_linear::GradientBytes(args), args.stream);
}

absl::Status BackwardWeight(const KernelArgs& args) {
  linear::Bf16BackwardWeight problem = det_linear::ReadBf16BackwardWeight(args);
  RLK_RETURN_IF_ERROR(det_linear::ApplyActivation(args, problem.grad));
  return linear::LaunchBf16BackwardWeight(problem, args.stream);
}

Variant MakeVariant(Backend backend, const char* kernel, LaunchFn launch) {
  Variant variant;
  variant.backend = backend;
  variant.kernel = kernel;
  variant.contracts = {
      {det_linear::kBf16Contract, ClaimLevel::kL3Portable, {90}, ClaimLevel::kL1BatchInvariant}};
  variant.capability_min = 80;
  variant.needs_step_law = true;
  variant.shared_bytes_per_block = linear::kSharedBytesPerBlock;
  variant.launch = launch;
  return variant;
}

// The variant for portable activations and that for silu_cuda, whose bits no other backend has.
void AddBoth(Variant variant, absl::Status (*portable)(const KernelArgs&),
             absl::Status (*silu_cuda)(const KernelArgs&), std::vector<Variant>& variants) {
  variant.applicable = portable;
  variants.push_back(variant);
  variant.kernel += "_silu_cuda";
  variant.applicable = silu_cuda;
  variant.contracts.front().claim = ClaimLevel::kL1BatchInvariant;
  variants.push_back(std::move(variant));
}

}  // namespace

std::vector<Variant> DetLinearBf16CudaVariants(Kind kind) {
  std::vector<Variant> variants;
  if (kind == Kind::kForward) {
    Variant wgmma = MakeVariant(Backend::kCudaSm90, "det_linear_bf16_forward_wgmma", &ForwardWgmma);
    wgmma.capability_min = wgmma.capability_max = 90;
    wgmma.workspace_bytes = &WgmmaBytes;
    AddBoth(std::move(wgmma), &ForActivation<false>, &ForActivation<true>, variants);
    AddBoth(MakeVariant(Backend::kCuda, "det_linear_bf16_forward_mma", &ForwardMma),
            &ForActivation<false>, &ForActivation<true>, variants);
    AddBoth(det_linear::K128CudaVariant(kind), &ForActivation<false>, &ForActivation<true>,
            variants);
    Variant witness;
    witness.backend = Backend::kCublasLt;
    witness.kernel = "cublaslt_matmul";
    witness.contracts = {
        {det_linear::kWitnessContract, ClaimLevel::kL0Repeatable, {90}, ClaimLevel::kL0Repeatable}};
    witness.capability_min = 80;
    witness.applicable = &ForWitness;
    witness.launch = &ForwardWitness;
    variants.push_back(std::move(witness));
    return variants;
  }
  const bool input = kind == Kind::kBackwardInput;
  Variant variant = MakeVariant(
      Backend::kCuda,
      input ? "det_linear_bf16_backward_input_cuda" : "det_linear_bf16_backward_weight_cuda",
      input ? &BackwardInput : &BackwardWeight);
  variant.workspace_bytes = input ? &BackwardInputBytes : &det_linear::GradientBytes;
  for (Variant& each : std::vector<Variant>{variant, det_linear::K128CudaVariant(kind)}) {
    AddBoth(std::move(each), &ForActivation<false>, &ForActivation<true>, variants);
  }
  return variants;
}

}  // namespace rlk
