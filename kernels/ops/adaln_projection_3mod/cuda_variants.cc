#include "kernels/ops/adaln_projection_3mod/cuda_variants.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/linear/cuda.h"
#include "kernels/linear/k128_cuda.h"
#include "kernels/linear/shared_memory.h"
#include "kernels/linear/views_f32.h"
#include "kernels/linear/workspace.h"
#include "kernels/ops/adaln_projection_3mod/adaln_projection_3mod.h"

namespace rlk {
namespace {

using linear::Shape;

absl::Status Bf16Weights(const KernelArgs& args) {
  if (args.Input("weight").dtype == DType::kBF16) return absl::OkStatus();
  return absl::FailedPreconditionError("for BF16 weights");
}

absl::Status F32Weights(const KernelArgs& args) {
  if (args.Input("weight").dtype == DType::kF32) return absl::OkStatus();
  return absl::FailedPreconditionError("for F32 weights");
}

// silu(temb) in BF16 stands first in the workspace.
int64_t PlainBytes(const KernelArgs& args) {
  const Shape shape = adaln::ReadShape(args);
  return linear::AlignWorkspace(shape.rows * shape.inputs * static_cast<int64_t>(sizeof(uint16_t)));
}

linear::Bf16Linear ReadForward(const KernelArgs& args) {
  linear::Bf16Linear problem;
  problem.shape = adaln::ReadShape(args);
  problem.weight = args.Input("weight").as<uint16_t>();
  problem.bias = args.Input("bias").as<uint16_t>();
  problem.out = adaln::ReadOutput(args);
  return problem;
}

int64_t WgmmaBytes(const KernelArgs& args) { return linear::Bf16WgmmaBytes(ReadForward(args)); }

// silu(temb), where the linear reads it as it is.
absl::Status PlainSilu(const KernelArgs& args, uint16_t*& plain) {
  const Shape shape = adaln::ReadShape(args);
  plain = reinterpret_cast<uint16_t*>(args.workspace.data());
  return linear::LaunchBf16Silu(adaln::ReadSilu(args), args.Input("temb").as<float>(), shape.rows,
                                shape.inputs, plain, nullptr, args.stream);
}

absl::Status ForwardMma(const KernelArgs& args) {
  linear::Bf16Linear problem = ReadForward(args);
  uint16_t* plain = nullptr;
  RLK_RETURN_IF_ERROR(PlainSilu(args, plain));
  problem.x = plain;
  return linear::LaunchBf16ForwardMma(problem, args.stream, true);
}

absl::Status ForwardWgmma(const KernelArgs& args) {
  const linear::Bf16Linear problem = ReadForward(args);
  auto* packed = reinterpret_cast<uint16_t*>(args.workspace.data());
  RLK_RETURN_IF_ERROR(linear::LaunchBf16Silu(adaln::ReadSilu(args), args.Input("temb").as<float>(),
                                             problem.shape.rows, problem.shape.inputs, nullptr,
                                             packed, args.stream));
  return linear::LaunchBf16ForwardWgmma(problem, packed, args.stream);
}

int64_t ForwardK128Bytes(const KernelArgs& args) {
  return PlainBytes(args) + linear::K128ForwardBytes(ReadForward(args), adaln::ReadFoldParts(args));
}

absl::Status ForwardK128(const KernelArgs& args) {
  const linear::Bf16Linear problem = ReadForward(args);
  uint16_t* plain = nullptr;
  RLK_RETURN_IF_ERROR(PlainSilu(args, plain));
  std::byte* const workspace = args.workspace.data() + PlainBytes(args);
  RLK_RETURN_IF_ERROR(linear::LaunchK128Pack(plain, problem.shape.rows, problem.shape.inputs,
                                             reinterpret_cast<uint16_t*>(workspace), args.stream));
  return linear::LaunchK128ForwardWgmma(problem, adaln::ReadFoldParts(args), workspace,
                                        args.stream);
}

linear::Bf16BackwardInput ReadBackwardInput(const KernelArgs& args) {
  linear::Bf16BackwardInput problem;
  problem.shape = adaln::ReadShape(args);
  problem.grad = adaln::ReadGradient(args);
  problem.weight = args.Input("weight").as<uint16_t>();
  problem.grad_x = {DType::kF32, args.Output("grad_temb").data};
  problem.temb = args.Input("temb").as<float>();
  problem.silu = adaln::ReadSilu(args);
  return problem;
}

bool WantsWeight(const KernelArgs& args) {
  return args.Output("grad_weight").present() || args.Output("grad_bias").present();
}

linear::Bf16BackwardWeight ReadBackwardWeight(const KernelArgs& args, const uint16_t* x) {
  const MutableTensorView& grad_weight = args.Output("grad_weight");
  const MutableTensorView& grad_bias = args.Output("grad_bias");
  linear::Bf16BackwardWeight problem;
  problem.shape = adaln::ReadShape(args);
  problem.grad = adaln::ReadGradient(args);
  problem.x = x;
  problem.grad_weight = {grad_weight.dtype, grad_weight.data};
  problem.grad_bias = {grad_bias.dtype, grad_bias.data};
  return problem;
}

int64_t BackwardBytes(const KernelArgs& args) {
  return PlainBytes(args) + linear::Bf16BackwardInputBytes(adaln::ReadShape(args));
}

absl::Status Backward(const KernelArgs& args) {
  if (args.Output("grad_temb").present()) {
    RLK_RETURN_IF_ERROR(linear::LaunchBf16BackwardInput(
        ReadBackwardInput(args), args.workspace.data() + PlainBytes(args), args.stream));
  }
  if (!WantsWeight(args)) return absl::OkStatus();
  uint16_t* plain = nullptr;
  RLK_RETURN_IF_ERROR(PlainSilu(args, plain));
  return linear::LaunchBf16BackwardWeight(ReadBackwardWeight(args, plain), args.stream);
}

int64_t BackwardK128Bytes(const KernelArgs& args) {
  const Shape shape = adaln::ReadShape(args);
  return PlainBytes(args) + linear::K128GradientBytes(adaln::ReadGradient(args), shape.rows) +
         linear::K128BackwardInputBytes(shape, adaln::ReadFoldParts(args));
}

absl::Status BackwardK128(const KernelArgs& args) {
  const linear::Bf16BackwardInput input = ReadBackwardInput(args);
  std::byte* const workspace = args.workspace.data() + PlainBytes(args);
  linear::K128Gradient grad;
  RLK_RETURN_IF_ERROR(
      linear::PrepareK128Gradient(input.grad, input.shape.rows, workspace, args.stream, grad));
  if (args.Output("grad_temb").present()) {
    RLK_RETURN_IF_ERROR(linear::LaunchK128BackwardInput(
        input, grad, adaln::ReadFoldParts(args),
        workspace + linear::K128GradientBytes(input.grad, input.shape.rows), args.stream));
  }
  if (!WantsWeight(args)) return absl::OkStatus();
  uint16_t* plain = nullptr;
  RLK_RETURN_IF_ERROR(PlainSilu(args, plain));
  return linear::LaunchK128BackwardWeight(ReadBackwardWeight(args, plain), grad, args.stream);
}

// silu(temb) in F32 stands first in the workspace.
int64_t SiluF32Bytes(const Shape& shape) {
  return linear::AlignWorkspace(shape.rows * shape.inputs * static_cast<int64_t>(sizeof(float)));
}

int64_t ForwardF32Bytes(const KernelArgs& args) {
  const Shape shape = adaln::ReadShape(args);
  if (adaln::ReadOutput(args).view_width == 0) return SiluF32Bytes(shape);
  return SiluF32Bytes(shape) + shape.rows * shape.outputs * static_cast<int64_t>(sizeof(float));
}

absl::Status SiluF32(const KernelArgs& args, const Shape& shape, float* a) {
  const bool portable = adaln::ReadSilu(args) == linear::SiluKind::kPortable;
  return linear::LaunchActivate(
      portable ? linear::Activation::kSilu : linear::Activation::kSiluCuda,
      args.Input("temb").as<float>(), shape.rows * shape.inputs, a, args.stream);
}

absl::Status ForwardF32(const KernelArgs& args) {
  const linear::Bf16Output out = adaln::ReadOutput(args);
  linear::Fp32Forward problem;
  problem.shape = adaln::ReadShape(args);
  auto* a = reinterpret_cast<float*>(args.workspace.data());
  RLK_RETURN_IF_ERROR(SiluF32(args, problem.shape, a));
  problem.x = a;
  problem.weight = args.Input("weight").as<float>();
  problem.bias = args.Input("bias").as<float>();
  if (out.view_width == 0) {
    problem.y = static_cast<float*>(out.views[0]);
    return linear::LaunchForwardFp32(problem, args.stream);
  }
  problem.y = reinterpret_cast<float*>(args.workspace.data() + SiluF32Bytes(problem.shape));
  RLK_RETURN_IF_ERROR(linear::LaunchForwardFp32(problem, args.stream));
  return linear::LaunchScatterViews(problem.shape, problem.y, out, args.stream);
}

int64_t BackwardF32Bytes(const KernelArgs& args) {
  const Shape shape = adaln::ReadShape(args);
  return SiluF32Bytes(shape) + linear::ViewsBackwardF32Bytes(shape);
}

absl::Status BackwardF32(const KernelArgs& args) {
  linear::ViewsBackwardF32 problem;
  problem.shape = adaln::ReadShape(args);
  problem.grad = adaln::ReadGradient(args);
  problem.weight = args.Input("weight").as<float>();
  problem.temb = args.Input("temb").as<float>();
  problem.silu = adaln::ReadSilu(args);
  problem.grad_temb = args.Output("grad_temb").as<float>();
  problem.grad_weight = args.Output("grad_weight").as<float>();
  problem.grad_bias = args.Output("grad_bias").as<float>();
  auto* a = reinterpret_cast<float*>(args.workspace.data());
  if (problem.grad_weight != nullptr) RLK_RETURN_IF_ERROR(SiluF32(args, problem.shape, a));
  problem.a = a;
  return linear::LaunchViewsBackwardF32(
      problem, args.workspace.data() + SiluF32Bytes(problem.shape), args.stream);
}

Variant MakeVariant(Backend backend, const char* kernel, LaunchFn launch,
                    int64_t (*workspace_bytes)(const KernelArgs&), bool offer_h3) {
  Variant variant;
  variant.backend = backend;
  variant.kernel = kernel;
  for (const char* contract : {adaln::kPortableContract, adaln::kH3Contract}) {
    if (contract == adaln::kH3Contract && !offer_h3) continue;
    // CUDA's own SiLU, whose bits no other backend has.
    const bool own = contract == adaln::kH3Contract;
    variant.contracts.push_back({contract,
                                 own ? ClaimLevel::kL1BatchInvariant : ClaimLevel::kL3Portable,
                                 {90},
                                 ClaimLevel::kL1BatchInvariant});
  }
  variant.capability_min = 80;
  variant.needs_step_law = true;
  variant.shared_bytes_per_block = linear::kSharedBytesPerBlock;
  variant.applicable = &Bf16Weights;
  variant.launch = launch;
  variant.workspace_bytes = workspace_bytes;
  return variant;
}

Variant MakeK128Variant(const char* kernel, LaunchFn launch,
                        int64_t (*workspace_bytes)(const KernelArgs&)) {
  Variant variant = MakeVariant(Backend::kCudaSm90, kernel, launch, workspace_bytes, false);
  variant.contracts.front().contract = adaln::kK128Contract;
  variant.capability_min = variant.capability_max = 90;
  return variant;
}

// F32 weights take no tensor core.
Variant MakeF32Variant(const char* kernel, LaunchFn launch,
                       int64_t (*workspace_bytes)(const KernelArgs&), bool offer_h3) {
  Variant variant = MakeVariant(Backend::kCuda, kernel, launch, workspace_bytes, offer_h3);
  variant.needs_step_law = false;
  variant.applicable = &F32Weights;
  return variant;
}

}  // namespace

std::vector<Variant> AdalnCudaVariants(bool backward, bool offer_h3) {
  if (backward) {
    return {MakeVariant(Backend::kCuda, "adaln_backward_cuda", &Backward, &BackwardBytes, offer_h3),
            MakeK128Variant("adaln_backward_k128", &BackwardK128, &BackwardK128Bytes),
            MakeF32Variant("adaln_backward_f32", &BackwardF32, &BackwardF32Bytes, offer_h3)};
  }
  Variant wgmma =
      MakeVariant(Backend::kCudaSm90, "adaln_forward_wgmma", &ForwardWgmma, &WgmmaBytes, offer_h3);
  wgmma.capability_min = wgmma.capability_max = 90;
  Variant f32 = MakeF32Variant("adaln_forward_f32", &ForwardF32, &ForwardF32Bytes, offer_h3);
  f32.shared_bytes_per_block = 0;
  return {std::move(wgmma),
          MakeVariant(Backend::kCuda, "adaln_forward_mma", &ForwardMma, &PlainBytes, offer_h3),
          MakeK128Variant("adaln_forward_k128", &ForwardK128, &ForwardK128Bytes), std::move(f32)};
}

}  // namespace rlk
