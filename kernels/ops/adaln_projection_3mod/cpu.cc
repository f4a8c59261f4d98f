// The cpu backend of adaln_projection_3mod: portable-v1 and k128-v1.
#include "kernels/linear/cpu.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/linear/bf16_cpu.h"
#include "kernels/linear/k128_cpu.h"
#include "kernels/ops/adaln_projection_3mod/adaln_projection_3mod.h"

namespace rlk {
namespace {

using linear::HostRun;
using linear::Shape;

// Outputs whose gradient stands in memory at once, F32 weights.
constexpr int64_t kGradientOutputs = 4096;

// Row t of a [T, 18 H] table into the views.
void Scatter(const float* row, int64_t t, const linear::Bf16Output& out) {
  const int64_t width = out.view_width;
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t c = 0; c < linear::kViews; ++c) {
      if (out.views[c] == nullptr) continue;
      memcpy(static_cast<float*>(out.views[c]) + (3 * t + m) * width,
             row + (m * linear::kViews + c) * width, static_cast<size_t>(width) * sizeof(float));
    }
  }
}

std::vector<float> SiluF32(const KernelArgs& args, const Shape& shape, const HostRun& run) {
  std::vector<float> a(static_cast<size_t>(shape.rows * shape.inputs));
  linear::SiluF32Cpu(args.Input("temb").as<float>(), shape.rows * shape.inputs, run, a.data());
  return a;
}

std::vector<uint16_t> SiluBf16(const KernelArgs& args, const Shape& shape, const HostRun& run) {
  std::vector<uint16_t> ab(static_cast<size_t>(shape.rows * shape.inputs));
  linear::SiluBf16Cpu(args.Input("temb").as<float>(), shape.rows * shape.inputs, run, ab.data());
  return ab;
}

void ForwardF32(const KernelArgs& args, const HostRun& run) {
  const Shape shape = adaln::ReadShape(args);
  const linear::Bf16Output out = adaln::ReadOutput(args);
  const std::vector<float> a = SiluF32(args, shape, run);
  linear::Fp32Forward problem;
  problem.shape = shape;
  problem.x = a.data();
  problem.weight = args.Input("weight").as<float>();
  problem.bias = args.Input("bias").as<float>();
  problem.y = static_cast<float*>(out.views[0]);
  std::vector<float> table;
  if (out.view_width != 0) {
    table.resize(static_cast<size_t>(shape.rows * shape.outputs));
    problem.y = table.data();
  }
  linear::ForwardFp32Cpu(problem, run);
  if (out.view_width == 0) return;
  for (int64_t t = 0; t < shape.rows; ++t) Scatter(table.data() + t * shape.outputs, t, out);
}

bool IsK128(const KernelArgs& args) { return args.contract == adaln::kK128Contract; }

void ForwardBf16(const KernelArgs& args, const HostRun& run) {
  linear::Bf16Linear problem;
  problem.shape = adaln::ReadShape(args);
  const std::vector<uint16_t> ab = SiluBf16(args, problem.shape, run);
  problem.x = ab.data();
  problem.weight = args.Input("weight").as<uint16_t>();
  problem.bias = args.Input("bias").as<uint16_t>();
  problem.out = adaln::ReadOutput(args);
  if (IsK128(args)) {
    linear::ForwardK128Cpu(problem, adaln::ReadFoldParts(args), run);
  } else {
    linear::ForwardBf16Cpu(problem, run);
  }
}

void BackwardBf16(const KernelArgs& args, const HostRun& run) {
  const Shape shape = adaln::ReadShape(args);
  const linear::GradientSource grad = adaln::ReadGradient(args);
  const MutableTensorView& grad_temb = args.Output("grad_temb");
  const MutableTensorView& grad_weight = args.Output("grad_weight");
  const MutableTensorView& grad_bias = args.Output("grad_bias");
  if (grad_temb.present()) {
    linear::Bf16BackwardInput problem;
    problem.shape = shape;
    problem.grad = grad;
    problem.weight = args.Input("weight").as<uint16_t>();
    problem.grad_x = {DType::kF32, grad_temb.data};
    problem.temb = args.Input("temb").as<float>();
    if (IsK128(args)) {
      linear::BackwardInputK128Cpu(problem, adaln::ReadFoldParts(args), run);
    } else {
      linear::BackwardInputBf16Cpu(problem, run);
    }
  }
  if (!grad_weight.present() && !grad_bias.present()) return;
  const std::vector<uint16_t> ab = SiluBf16(args, shape, run);
  linear::Bf16BackwardWeight problem;
  problem.shape = shape;
  problem.grad = grad;
  problem.x = ab.data();
  problem.grad_weight = {grad_weight.dtype, grad_weight.data};
  problem.grad_bias = {grad_bias.dtype, grad_bias.data};
  (IsK128(args) ? linear::BackwardWeightK128Cpu : linear::BackwardWeightBf16Cpu)(problem, run);
}

void BackwardF32(const KernelArgs& args, const HostRun& run) {
  const Shape shape = adaln::ReadShape(args);
  const linear::GradientSource grad = adaln::ReadGradient(args);
  float* grad_temb = args.Output("grad_temb").as<float>();
  std::vector<float> g;
  for (int64_t first = 0; grad_temb != nullptr && first < shape.rows;
       first += linear::kBf16RowsMax) {
    linear::BackwardInput part;
    part.shape = {std::min(shape.rows - first, linear::kBf16RowsMax), shape.outputs, shape.inputs};
    g.resize(static_cast<size_t>(part.shape.rows * shape.outputs));
    linear::GatherGradientCpu(grad, first, part.shape.rows, 0, shape.outputs, run, g.data());
    part.g = g.data();
    part.weight = {DType::kF32, args.Input("weight").data};
    part.grad_x = {DType::kF32, grad_temb + first * shape.inputs};
    linear::BackwardInputCpu(part, run);
  }
  if (grad_temb != nullptr) {
    linear::SiluVjpCpu(args.Input("temb").as<float>(), shape.rows * shape.inputs, run, grad_temb);
  }
  float* grad_weight = args.Output("grad_weight").as<float>();
  float* grad_bias = args.Output("grad_bias").as<float>();
  if (grad_weight == nullptr && grad_bias == nullptr) return;
  const std::vector<float> a = SiluF32(args, shape, run);
  for (int64_t n = 0; n < shape.outputs; n += kGradientOutputs) {
    linear::BackwardWeight part;
    part.shape = {shape.rows, std::min(shape.outputs - n, kGradientOutputs), shape.inputs};
    g.resize(static_cast<size_t>(shape.rows * part.shape.outputs));
    linear::GatherGradientCpu(grad, 0, shape.rows, n, part.shape.outputs, run, g.data());
    part.g = g.data();
    part.x = {DType::kF32, a.data()};
    if (grad_weight != nullptr) part.grad_weight.data = grad_weight + n * shape.inputs;
    if (grad_bias != nullptr) part.grad_bias.data = grad_bias + n;
    linear::BackwardWeightCpu(part, run);
  }
}

bool Bf16Weights(const KernelArgs& args) { return args.Input("weight").dtype == DType::kBF16; }

}  // namespace

absl::Status RunAdalnForwardCpu(const KernelArgs& args, Isa isa) {
  (Bf16Weights(args) ? ForwardBf16 : ForwardF32)(args, {args.pool, isa});
  return absl::OkStatus();
}

absl::Status RunAdalnBackwardCpu(const KernelArgs& args, Isa isa) {
  (Bf16Weights(args) ? BackwardBf16 : BackwardF32)(args, {args.pool, isa});
  return absl::OkStatus();
}

absl::Status LaunchAdalnForwardCpu(const KernelArgs& args) {
  return RunAdalnForwardCpu(args, BestIsa());
}

absl::Status LaunchAdalnBackwardCpu(const KernelArgs& args) {
  return RunAdalnBackwardCpu(args, BestIsa());
}

}  // namespace rlk
