// The cpu backend of h3-det-linear-v1.
#include <vector>

#include "kernels/linear/cpu.h"
#include "kernels/ops/det_linear/det_linear.h"

namespace rlk {
namespace {

const float* Gradient(const KernelArgs& args, const linear::HostRun& run,
                      std::vector<float>& storage) {
  const TensorView& grad_y = args.Input("grad_y");
  return linear::GradientCpu(det_linear::ReadActivation(args), det_linear::OperandOf(grad_y),
                             args.Input("pre").as<float>(), grad_y.elements(), run, storage);
}

}  // namespace

absl::Status RunDetLinearFp32ForwardCpu(const KernelArgs& args, Isa isa) {
  linear::ForwardFp32Cpu(det_linear::ReadFp32Forward(args), {args.pool, isa});
  return absl::OkStatus();
}

absl::Status RunDetLinearFp32BackwardInputCpu(const KernelArgs& args, Isa isa) {
  const linear::HostRun run{args.pool, isa};
  std::vector<float> storage;
  linear::BackwardInput problem = det_linear::ReadBackwardInput(args);
  problem.g = Gradient(args, run, storage);
  linear::BackwardInputCpu(problem, run);
  return absl::OkStatus();
}

absl::Status RunDetLinearFp32BackwardWeightCpu(const KernelArgs& args, Isa isa) {
  const linear::HostRun run{args.pool, isa};
  std::vector<float> storage;
  linear::BackwardWeight problem = det_linear::ReadBackwardWeight(args);
  problem.g = Gradient(args, run, storage);
  linear::BackwardWeightCpu(problem, run);
  return absl::OkStatus();
}

absl::Status LaunchDetLinearFp32ForwardCpu(const KernelArgs& args) {
  return RunDetLinearFp32ForwardCpu(args, BestIsa());
}

absl::Status LaunchDetLinearFp32BackwardInputCpu(const KernelArgs& args) {
  return RunDetLinearFp32BackwardInputCpu(args, BestIsa());
}

absl::Status LaunchDetLinearFp32BackwardWeightCpu(const KernelArgs& args) {
  return RunDetLinearFp32BackwardWeightCpu(args, BestIsa());
}

}  // namespace rlk
