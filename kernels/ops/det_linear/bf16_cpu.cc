// The cpu backend of the contracts of BF16 operands, and their calls as kernels/linear takes them.
#include "kernels/linear/bf16_cpu.h"

#include <vector>

#include "kernels/linear/cpu.h"
#include "kernels/linear/k128_cpu.h"
#include "kernels/ops/det_linear/bf16.h"

namespace rlk {
namespace det_linear {
namespace {

linear::GradientSource SourceOf(const TensorView& grad_y) {
  linear::GradientSource source;
  source.views[0] = grad_y.data;
  source.f32 = grad_y.dtype == DType::kF32;
  source.outputs = grad_y.shape[1];
  return source;
}

}  // namespace

linear::GradientSource GradientInMemory(const float* g, int64_t outputs) {
  linear::GradientSource source;
  source.views[0] = g;
  source.outputs = outputs;
  return source;
}

linear::Bf16Linear ReadBf16Forward(const KernelArgs& args) {
  linear::Bf16Linear problem;
  problem.shape = ReadShape(args, Kind::kForward);
  problem.x = args.Input("x").as<uint16_t>();
  problem.weight = args.Input("weight").as<uint16_t>();
  problem.bias = args.Input("bias").as<uint16_t>();
  const MutableTensorView& y = args.Output("y");
  problem.out.views[0] = y.data;
  problem.out.f32 = y.dtype == DType::kF32;
  problem.out.pre = args.Output("pre").as<float>();
  problem.out.activation = ReadActivation(args);
  return problem;
}

linear::Bf16BackwardInput ReadBf16BackwardInput(const KernelArgs& args) {
  linear::Bf16BackwardInput problem;
  problem.shape = ReadShape(args, Kind::kBackwardInput);
  problem.grad = SourceOf(args.Input("grad_y"));
  problem.weight = args.Input("weight").as<uint16_t>();
  problem.grad_x = ResultOf(args.Output("grad_x"));
  return problem;
}

linear::Bf16BackwardWeight ReadBf16BackwardWeight(const KernelArgs& args) {
  linear::Bf16BackwardWeight problem;
  problem.shape = ReadShape(args, Kind::kBackwardWeight);
  problem.grad = SourceOf(args.Input("grad_y"));
  problem.x = args.Input("x").as<uint16_t>();
  problem.weight_carry = args.Input("dweight_acc_in").as<float>();
  problem.bias_carry = args.Input("dbias_acc_in").as<float>();
  problem.weight_acc = args.Output("dweight_acc").as<float>();
  problem.bias_acc = args.Output("dbias_acc").as<float>();
  problem.grad_weight = ResultOf(args.Output("grad_weight"));
  problem.grad_bias = ResultOf(args.Output("grad_bias"));
  return problem;
}

}  // namespace det_linear

namespace {

using det_linear::Kind;

// Replaces the source of the gradient by g where there is an activation.
template <typename Problem>
void ApplyActivation(const KernelArgs& args, const linear::HostRun& run, Problem& problem,
                     std::vector<float>& storage) {
  const linear::Activation activation = det_linear::ReadActivation(args);
  if (activation == linear::Activation::kNone) return;
  const TensorView& grad_y = args.Input("grad_y");
  const float* g =
      linear::GradientCpu(activation, det_linear::OperandOf(grad_y), args.Input("pre").as<float>(),
                          grad_y.elements(), run, storage);
  problem.grad = det_linear::GradientInMemory(g, problem.shape.outputs);
}

bool IsK128(const KernelArgs& args) { return args.contract == det_linear::kK128Contract; }

}  // namespace

absl::Status RunDetLinearBf16ForwardCpu(const KernelArgs& args, Isa isa) {
  const linear::HostRun run{args.pool, isa};
  const linear::Bf16Linear problem = det_linear::ReadBf16Forward(args);
  if (IsK128(args)) {
    linear::ForwardK128Cpu(problem, det_linear::ReadFoldParts(args, Kind::kForward), run);
  } else {
    linear::ForwardBf16Cpu(problem, run);
  }
  return absl::OkStatus();
}

absl::Status RunDetLinearBf16BackwardInputCpu(const KernelArgs& args, Isa isa) {
  const linear::HostRun run{args.pool, isa};
  std::vector<float> storage;
  linear::Bf16BackwardInput problem = det_linear::ReadBf16BackwardInput(args);
  ApplyActivation(args, run, problem, storage);
  if (IsK128(args)) {
    const int64_t parts = det_linear::ReadFoldParts(args, Kind::kBackwardInput);
    linear::BackwardInputK128Cpu(problem, parts, run);
  } else {
    linear::BackwardInputBf16Cpu(problem, run);
  }
  return absl::OkStatus();
}

absl::Status RunDetLinearBf16BackwardWeightCpu(const KernelArgs& args, Isa isa) {
  const linear::HostRun run{args.pool, isa};
  std::vector<float> storage;
  linear::Bf16BackwardWeight problem = det_linear::ReadBf16BackwardWeight(args);
  ApplyActivation(args, run, problem, storage);
  (IsK128(args) ? linear::BackwardWeightK128Cpu : linear::BackwardWeightBf16Cpu)(problem, run);
  return absl::OkStatus();
}

absl::Status LaunchDetLinearBf16ForwardCpu(const KernelArgs& args) {
  return RunDetLinearBf16ForwardCpu(args, BestIsa());
}

absl::Status LaunchDetLinearBf16BackwardInputCpu(const KernelArgs& args) {
  return RunDetLinearBf16BackwardInputCpu(args, BestIsa());
}

absl::Status LaunchDetLinearBf16BackwardWeightCpu(const KernelArgs& args) {
  return RunDetLinearBf16BackwardWeightCpu(args, BestIsa());
}

}  // namespace rlk
