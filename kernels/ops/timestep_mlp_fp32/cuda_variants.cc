#include "kernels/ops/timestep_mlp_fp32/cuda_variants.h"

#include <algorithm>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/linear/cuda.h"
#include "kernels/linear/workspace.h"

namespace rlk {
namespace {

using linear::Activation;
using linear::Operand;
using timestep_mlp::Sizes;

const float* F32(const KernelArgs& args, const char* input) {
  return args.Input(input).as<float>();
}

Operand OperandOf(const float* data) { return {DType::kF32, data}; }
linear::Result ResultOf(const MutableTensorView& output) { return {DType::kF32, output.data}; }

int64_t HiddenBytes(const Sizes& sizes) {
  return linear::AlignWorkspace(sizes.rows * sizes.hidden * static_cast<int64_t>(sizeof(float)));
}

linear::Shape FirstShape(const Sizes& sizes) { return {sizes.rows, sizes.hidden, sizes.inputs}; }
linear::Shape SecondShape(const Sizes& sizes) { return {sizes.rows, sizes.outputs, sizes.hidden}; }

linear::Fp32Forward FirstLayer(const KernelArgs& args, const Sizes& sizes, float* pre,
                               float* hidden) {
  linear::Fp32Forward layer;
  layer.shape = FirstShape(sizes);
  layer.x = F32(args, "x");
  layer.weight = F32(args, "w1");
  layer.bias = F32(args, "b1");
  layer.activation = Activation::kSilu;
  layer.pre = pre;
  layer.y = hidden;
  return layer;
}

int64_t ForwardBytes(const KernelArgs& args) { return HiddenBytes(timestep_mlp::ReadSizes(args)); }

// The second layer begins early: its weights are on their way while the first one runs.
absl::Status Forward(const KernelArgs& args) {
  const Sizes sizes = timestep_mlp::ReadSizes(args);
  float* const y = args.Output("y").as<float>();
  auto* const hidden = reinterpret_cast<float*>(args.workspace.data());
  RLK_RETURN_IF_ERROR(linear::LaunchForwardFp32(
      FirstLayer(args, sizes, args.Output("pre").as<float>(), y != nullptr ? hidden : nullptr),
      args.stream));
  if (y == nullptr) return absl::OkStatus();
  linear::Fp32Forward layer;
  layer.shape = SecondShape(sizes);
  layer.x = hidden;
  layer.weight = F32(args, "w2");
  layer.bias = F32(args, "b2");
  layer.y = y;
  return linear::LaunchForwardFp32(layer, args.stream, linear::Overlap::kBeginEarly);
}

// Workspace: hidden, pre where it is recomputed, the gradient of pre, partial sums.
int64_t BackwardBytes(const KernelArgs& args) {
  const Sizes sizes = timestep_mlp::ReadSizes(args);
  return 3 * HiddenBytes(sizes) + std::max(linear::BackwardInputWorkspace(FirstShape(sizes)),
                                           linear::BackwardInputWorkspace(SecondShape(sizes)));
}

absl::Status SecondLayerGradients(const KernelArgs& args, const Sizes& sizes, const float* hidden) {
  linear::BackwardWeight weight;
  weight.shape = SecondShape(sizes);
  weight.g = F32(args, "grad_y");
  weight.x = OperandOf(hidden);
  weight.grad_weight = ResultOf(args.Output("grad_w2"));
  weight.grad_bias = ResultOf(args.Output("grad_b2"));
  return linear::LaunchBackwardWeightFp32(weight, args.stream);
}

// The gradient of pre, in `d`.
absl::Status HiddenGradient(const KernelArgs& args, const Sizes& sizes, const float* pre, float* d,
                            void* partials) {
  linear::BackwardInput input;
  input.shape = SecondShape(sizes);
  input.g = F32(args, "grad_y");
  input.weight = OperandOf(F32(args, "w2"));
  input.grad_x = {DType::kF32, d};
  RLK_RETURN_IF_ERROR(linear::LaunchBackwardInputFp32(input, partials, args.stream));
  return linear::LaunchGradient(Activation::kSilu, d, pre, sizes.rows * sizes.hidden, d,
                                args.stream);
}

absl::Status FirstLayerGradients(const KernelArgs& args, const Sizes& sizes, const float* d,
                                 void* partials) {
  linear::BackwardWeight weight;
  weight.shape = FirstShape(sizes);
  weight.g = d;
  weight.x = OperandOf(F32(args, "x"));
  weight.grad_weight = ResultOf(args.Output("grad_w1"));
  weight.grad_bias = ResultOf(args.Output("grad_b1"));
  RLK_RETURN_IF_ERROR(linear::LaunchBackwardWeightFp32(weight, args.stream));
  linear::BackwardInput input;
  input.shape = FirstShape(sizes);
  input.g = d;
  input.weight = OperandOf(F32(args, "w1"));
  input.grad_x = ResultOf(args.Output("grad_x"));
  return linear::LaunchBackwardInputFp32(input, partials, args.stream);
}

absl::Status Backward(const KernelArgs& args) {
  const Sizes sizes = timestep_mlp::ReadSizes(args);
  const int64_t bytes = HiddenBytes(sizes);
  std::byte* const workspace = args.workspace.data();
  auto* const hidden = reinterpret_cast<float*>(workspace);
  auto* const recomputed = reinterpret_cast<float*>(workspace + bytes);
  auto* const d = reinterpret_cast<float*>(workspace + 2 * bytes);
  std::byte* const partials = workspace + 3 * bytes;
  const float* pre = F32(args, "pre");
  if (pre == nullptr) {
    RLK_RETURN_IF_ERROR(
        linear::LaunchForwardFp32(FirstLayer(args, sizes, recomputed, hidden), args.stream));
    pre = recomputed;
  } else if (args.Output("grad_w2").present()) {
    RLK_RETURN_IF_ERROR(linear::LaunchActivate(Activation::kSilu, pre, sizes.rows * sizes.hidden,
                                               hidden, args.stream));
  }
  RLK_RETURN_IF_ERROR(SecondLayerGradients(args, sizes, hidden));
  RLK_RETURN_IF_ERROR(HiddenGradient(args, sizes, pre, d, partials));
  return FirstLayerGradients(args, sizes, d, partials);
}

}  // namespace

std::vector<Variant> TimestepMlpCudaVariants(bool backward) {
  Variant variant;
  variant.backend = Backend::kCuda;
  variant.kernel = backward ? "timestep_mlp_backward_cuda" : "timestep_mlp_forward_cuda";
  variant.capability_min = 80;
  variant.launch = backward ? &Backward : &Forward;
  variant.workspace_bytes = backward ? &BackwardBytes : &ForwardBytes;
  variant.contracts = {{timestep_mlp::kPortableContract,
                        ClaimLevel::kL3Portable,
                        {90},
                        ClaimLevel::kL1BatchInvariant}};
  return {std::move(variant)};
}

}  // namespace rlk
