#include "kernels/ops/adaln_projection_3mod/cuda_variants.h"

#include <cstddef>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/ops/adaln_projection_3mod/adaln_projection_3mod.h"

namespace rlk {
namespace {

using linear::Shape;

// Up to here one pass of `mma.sync` is as fast as the weights can be read.
constexpr int64_t kMmaRows = 8;

absl::Status Bf16Weights(const KernelArgs& args) {
  if (args.Input("weight").dtype == DType::kBF16) return absl::OkStatus();
  return absl::FailedPreconditionError("for BF16 weights");
}

absl::Status ManyRows(const KernelArgs& args) {
  RLK_RETURN_IF_ERROR(Bf16Weights(args));
  if (args.Input("temb").shape[0] > kMmaRows) return absl::OkStatus();
  return absl::FailedPreconditionError("for more than 8 rows");
}

// silu(temb) in BF16 stands first in the workspace.
int64_t PlainBytes(const KernelArgs& args) {
  const Shape shape = adaln::ReadShape(args);
  const int64_t bytes = shape.rows * shape.inputs * static_cast<int64_t>(sizeof(uint16_t));
  return (bytes + 255) / 256 * 256;
}

int64_t PackedBytes(const KernelArgs& args) {
  const Shape shape = adaln::ReadShape(args);
  return linear::Bf16PackedElements(shape.rows, shape.inputs) *
         static_cast<int64_t>(sizeof(uint16_t));
}

linear::Bf16Linear ReadForward(const KernelArgs& args) {
  linear::Bf16Linear problem;
  problem.shape = adaln::ReadShape(args);
  problem.weight = args.Input("weight").as<uint16_t>();
  problem.bias = args.Input("bias").as<uint16_t>();
  problem.out = adaln::ReadOutput(args);
  return problem;
}

absl::Status ForwardMma(const KernelArgs& args) {
  linear::Bf16Linear problem = ReadForward(args);
  auto* plain = reinterpret_cast<uint16_t*>(args.workspace.data());
  RLK_RETURN_IF_ERROR(linear::LaunchBf16Silu(adaln::ReadSilu(args), args.Input("temb").as<float>(),
                                             problem.shape.rows, problem.shape.inputs, plain,
                                             nullptr, args.stream));
  problem.x = plain;
  return linear::LaunchBf16ForwardMma(problem, args.stream);
}

absl::Status ForwardWgmma(const KernelArgs& args) {
  const linear::Bf16Linear problem = ReadForward(args);
  auto* packed = reinterpret_cast<uint16_t*>(args.workspace.data());
  RLK_RETURN_IF_ERROR(linear::LaunchBf16Silu(adaln::ReadSilu(args), args.Input("temb").as<float>(),
                                             problem.shape.rows, problem.shape.inputs, nullptr,
                                             packed, args.stream));
  return linear::LaunchBf16ForwardWgmma(problem, packed, args.stream);
}

int64_t BackwardBytes(const KernelArgs& args) {
  return PlainBytes(args) + linear::Bf16BackwardInputBytes(adaln::ReadShape(args));
}

absl::Status BackwardInput(const KernelArgs& args) {
  linear::Bf16BackwardInput problem;
  problem.shape = adaln::ReadShape(args);
  problem.grad = adaln::ReadGradient(args);
  problem.weight = args.Input("weight").as<uint16_t>();
  problem.grad_x = {DType::kF32, args.Output("grad_temb").data};
  problem.temb = args.Input("temb").as<float>();
  problem.silu = adaln::ReadSilu(args);
  if (problem.grad_x.data == nullptr) return absl::OkStatus();
  return linear::LaunchBf16BackwardInput(problem, args.workspace.data() + PlainBytes(args),
                                         args.stream);
}

absl::Status BackwardWeight(const KernelArgs& args) {
  const MutableTensorView& grad_weight = args.Output("grad_weight");
  const MutableTensorView& grad_bias = args.Output("grad_bias");
  if (!grad_weight.present() && !grad_bias.present()) return absl::OkStatus();
  linear::Bf16BackwardWeight problem;
  problem.shape = adaln::ReadShape(args);
  problem.grad = adaln::ReadGradient(args);
  auto* plain = reinterpret_cast<uint16_t*>(args.workspace.data());
  RLK_RETURN_IF_ERROR(linear::LaunchBf16Silu(adaln::ReadSilu(args), args.Input("temb").as<float>(),
                                             problem.shape.rows, problem.shape.inputs, plain,
                                             nullptr, args.stream));
  problem.x = plain;
  problem.grad_weight = {grad_weight.dtype, grad_weight.data};
  problem.grad_bias = {grad_bias.dtype, grad_bias.data};
  return linear::LaunchBf16BackwardWeight(problem, args.stream);
}

absl::Status Backward(const KernelArgs& args) {
  RLK_RETURN_IF_ERROR(BackwardInput(args));
  return BackwardWeight(args);
}

Variant MakeVariant(Backend backend, const char* kernel, LaunchFn launch,
                    int64_t (*workspace_bytes)(const KernelArgs&), bool offer_h3) {
  Variant variant;
  variant.backend = backend;
  variant.kernel = kernel;
  for (const char* contract : {adaln::kPortableContract, adaln::kH3Contract}) {
    if (contract == adaln::kH3Contract && !offer_h3) continue;
    variant.contracts.push_back(
        {contract, ClaimLevel::kL1BatchInvariant, {90}, ClaimLevel::kL1BatchInvariant});
  }
  variant.capability_min = 80;
  variant.needs_step_law = true;
  variant.applicable = &Bf16Weights;
  variant.launch = launch;
  variant.workspace_bytes = workspace_bytes;
  return variant;
}

}  // namespace

std::vector<Variant> AdalnCudaVariants(bool backward, bool offer_h3) {
  if (backward) {
    return {
        MakeVariant(Backend::kCuda, "adaln_backward_cuda", &Backward, &BackwardBytes, offer_h3)};
  }
  Variant wgmma =
      MakeVariant(Backend::kCudaSm90, "adaln_forward_wgmma", &ForwardWgmma, &PackedBytes, offer_h3);
  wgmma.capability_min = wgmma.capability_max = 90;
  wgmma.applicable = &ManyRows;
  return {std::move(wgmma),
          MakeVariant(Backend::kCuda, "adaln_forward_mma", &ForwardMma, &PlainBytes, offer_h3)};
}

}  // namespace rlk
