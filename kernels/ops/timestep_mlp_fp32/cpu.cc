// The cpu backend of portable-v1, from the layers of kernels/linear.
#include "kernels/linear/cpu.h"

#include <cstddef>
#include <vector>

#include "kernels/ops/timestep_mlp_fp32/timestep_mlp_fp32.h"

namespace rlk {
namespace {

using linear::Activation;
using linear::HostRun;
using linear::Operand;
using linear::Result;
using timestep_mlp::Sizes;

const float* F32(const KernelArgs& args, const char* input) {
  return args.Input(input).as<float>();
}

Operand OperandOf(const float* data) { return {DType::kF32, data}; }
Result ResultOf(const MutableTensorView& output) { return {DType::kF32, output.data}; }

// pre and hidden [T, M]; either may be null.
void FirstLayer(const KernelArgs& args, const Sizes& sizes, const HostRun& run, float* pre,
                float* hidden) {
  linear::Fp32Forward layer;
  layer.shape = {sizes.rows, sizes.hidden, sizes.inputs};
  layer.x = F32(args, "x");
  layer.weight = F32(args, "w1");
  layer.bias = F32(args, "b1");
  layer.activation = Activation::kSilu;
  layer.pre = pre;
  layer.y = hidden;
  linear::ForwardFp32Cpu(layer, run);
}

}  // namespace

absl::Status RunTimestepMlpForwardCpu(const KernelArgs& args, Isa isa) {
  const HostRun run{args.pool, isa};
  const Sizes sizes = timestep_mlp::ReadSizes(args);
  float* const y = args.Output("y").as<float>();
  std::vector<float> hidden(y != nullptr ? static_cast<size_t>(sizes.rows * sizes.hidden) : 0);
  FirstLayer(args, sizes, run, args.Output("pre").as<float>(),
             y != nullptr ? hidden.data() : nullptr);
  linear::Fp32Forward layer;
  layer.shape = {sizes.rows, sizes.outputs, sizes.hidden};
  layer.x = hidden.data();
  layer.weight = F32(args, "w2");
  layer.bias = F32(args, "b2");
  layer.y = y;
  linear::ForwardFp32Cpu(layer, run);
  return absl::OkStatus();
}

absl::Status RunTimestepMlpBackwardCpu(const KernelArgs& args, Isa isa) {
  const HostRun run{args.pool, isa};
  const Sizes sizes = timestep_mlp::ReadSizes(args);
  const auto count = static_cast<size_t>(sizes.rows * sizes.hidden);
  const float* const g = F32(args, "grad_y");
  // The saved pre-activation or the recomputed one: their bits are equal. The hidden values are
  // recomputed in both cases.
  std::vector<float> recomputed(args.Input("pre").present() ? 0 : count), hidden(count);
  const float* pre = F32(args, "pre");
  if (pre == nullptr) {
    FirstLayer(args, sizes, run, recomputed.data(), hidden.data());
    pre = recomputed.data();
  } else {
    linear::ActivateCpu(Activation::kSilu, pre, static_cast<int64_t>(count), run, hidden.data());
  }
  linear::BackwardWeight second;
  second.shape = {sizes.rows, sizes.outputs, sizes.hidden};
  second.g = g;
  second.x = OperandOf(hidden.data());
  second.grad_weight = ResultOf(args.Output("grad_w2"));
  second.grad_bias = ResultOf(args.Output("grad_b2"));
  linear::BackwardWeightCpu(second, run);

  std::vector<float> dhidden(count), dpre;
  linear::BackwardInput through_second;
  through_second.shape = second.shape;
  through_second.g = g;
  through_second.weight = OperandOf(F32(args, "w2"));
  through_second.grad_x = {DType::kF32, dhidden.data()};
  linear::BackwardInputCpu(through_second, run);
  const float* const d = linear::GradientCpu(Activation::kSilu, OperandOf(dhidden.data()), pre,
                                             static_cast<int64_t>(count), run, dpre);

  linear::BackwardWeight first;
  first.shape = {sizes.rows, sizes.hidden, sizes.inputs};
  first.g = d;
  first.x = OperandOf(F32(args, "x"));
  first.grad_weight = ResultOf(args.Output("grad_w1"));
  first.grad_bias = ResultOf(args.Output("grad_b1"));
  linear::BackwardWeightCpu(first, run);
  linear::BackwardInput through_first;
  through_first.shape = first.shape;
  through_first.g = d;
  through_first.weight = OperandOf(F32(args, "w1"));
  through_first.grad_x = ResultOf(args.Output("grad_x"));
  linear::BackwardInputCpu(through_first, run);
  return absl::OkStatus();
}

absl::Status LaunchTimestepMlpForwardCpu(const KernelArgs& args) {
  return RunTimestepMlpForwardCpu(args, BestIsa());
}

absl::Status LaunchTimestepMlpBackwardCpu(const KernelArgs& args) {
  return RunTimestepMlpBackwardCpu(args, BestIsa());
}

}  // namespace rlk
