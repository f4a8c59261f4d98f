// A backward call as its kernels take it.
#pragma once

#include "kernels/ops/rms_norm/launch.cuh"
#include "kernels/ops/rms_norm/weight_gradient.cuh"
#include "kernels/ops/rms_norm/workspace.h"

namespace rlk::rms_norm {

// One backward call on its way to the device.
struct BackwardCall {
  Problem problem;
  Scalars scalars;
  BackwardPointers rows;
  BackwardIndex index;
  FoldPointers fold;
  device::StridedIndex carry_index;
  bool streamable;
  cudaStream_t stream;
};

inline BackwardCall MakeBackwardCall(const KernelArgs& args) {
  BackwardCall call = {};
  call.problem = ReadProblem(args);
  const Convention convention = call.problem.convention;
  const TensorView& x = args.Input("x");
  const TensorView& weight = args.Input("weight");
  const TensorView& gate = GateOf(args, convention);
  const TensorView& grad_y = args.Input("grad_y");
  const TensorView& rstd = args.Input("rstd");
  const TensorView& carry = args.Input("dweight_acc_in");
  call.scalars = MakeScalars(args, call.problem);
  call.scalars.grad_y_is_f32 = grad_y.dtype == DType::kF32;
  auto* workspace = reinterpret_cast<char*>(args.workspace.data());
  auto* statistic = reinterpret_cast<float*>(workspace);
  const MutableTensorView& grad_x = args.Output("grad_x");
  void* grad_gate = IsGated(convention) ? args.Output("grad_gate").data : nullptr;
  call.rows = {x.data,           weight.data, gate.data,   grad_y.data,
               rstd.as<float>(), statistic,   grad_x.data, grad_gate};
  call.index = {IndexOf(x), IndexOf(weight), IndexOf(gate), IndexOf(grad_y), IndexOf(rstd)};
  call.fold = {x.data,
               gate.data,
               grad_y.data,
               statistic,
               carry.as<float>(),
               args.Output("grad_weight").data,
               args.Output("dweight_acc").as<float>(),
               reinterpret_cast<float*>(workspace + StatisticBytes(call.problem))};
  call.carry_index = IndexOf(carry);
  call.streamable =
      call.problem.length % kGroup == 0 && call.problem.length <= kRegisterLengthMax &&
      Streamable(x) && Streamable(weight) && Streamable(gate) && Streamable(grad_y) &&
      (!rstd.present() || rstd.contiguous()) && (!carry.present() || carry.contiguous()) &&
      Streamable(grad_x) && device::VectorAligned(grad_gate);
  call.stream = cuda::CudaStream(args.stream);
  return call;
}

}  // namespace rlk::rms_norm
