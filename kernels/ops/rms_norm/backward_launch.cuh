// A backward call as its kernels take it.
#pragma once

#include "kernels/ops/rms_norm/launch.cuh"
#include "kernels/ops/rms_norm/left_fold.cuh"
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
  float* sum;  // [length], workspace of a left fold over segments
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
  char* kept = workspace + StatisticBytes(call.problem);
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
               reinterpret_cast<float*>(kept),
               reinterpret_cast<float*>(kept),
               reinterpret_cast<uint32_t*>(statistic)};
  call.sum = reinterpret_cast<float*>(kept + TermBytes(call.problem));
  call.carry_index = IndexOf(carry);
  call.streamable =
      call.problem.length % kGroup == 0 && call.problem.length <= kRegisterLengthMax &&
      Streamable(x) && Streamable(weight) && Streamable(gate) && Streamable(grad_y) &&
      (!rstd.present() || rstd.contiguous()) && (!carry.present() || carry.contiguous()) &&
      Streamable(grad_x) && device::VectorAligned(grad_gate);
  call.stream = cuda::CudaStream(args.stream);
  return call;
}

inline bool WantsWeightGradient(const BackwardCall& call) {
  return call.fold.grad_weight != nullptr || call.fold.accumulator != nullptr;
}

// The last step of chunk128, from the partial sums of the kernel launched before.
template <typename X>
absl::Status LaunchChunkFold(const BackwardCall& call) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  cuda::LaunchShape shape;
  RLK_ASSIGN_OR_RETURN(shape.blocks, cuda::GridBlocks(call.problem.length, kPartialColumns));
  shape.threads = kPartialThreads;
  shape.starts_early = device.capability >= 90;
  return cuda::LaunchWith(ChunkFoldKernel<X>, shape, call.stream, call.fold, call.scalars);
}

}  // namespace rlk::rms_norm
