#include "kernels/core/status.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/linear/workspace.h"
#include "kernels/ops/det_linear/bf16.h"

namespace rlk::det_linear {

using linear::Activation;

int64_t GradientBytes(const KernelArgs& args) {
  if (ReadActivation(args) == Activation::kNone) return 0;
  const int64_t bytes = args.Input("grad_y").elements() * static_cast<int64_t>(sizeof(float));
  return linear::AlignWorkspace(bytes);
}

absl::Status ApplyActivation(const KernelArgs& args, linear::GradientSource& grad) {
  const Activation activation = ReadActivation(args);
  if (activation == Activation::kNone) return absl::OkStatus();
  auto* g = reinterpret_cast<float*>(args.workspace.data());
  const TensorView& grad_y = args.Input("grad_y");
  grad = GradientInMemory(g, grad_y.shape[1]);
  return linear::LaunchBf16Gradient(activation, OperandOf(grad_y), args.Input("pre").as<float>(),
                                    grad_y.elements(), g, args.stream);
}

}  // namespace rlk::det_linear
