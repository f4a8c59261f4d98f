// Launcher of the forward for one dtype of x.
#pragma once

#include "kernels/ops/rms_norm/forward.cuh"
#include "kernels/ops/rms_norm/launch.cuh"

namespace rlk::rms_norm {

template <typename X>
absl::Status LaunchForward(const KernelArgs& args) {
  const Problem problem = ReadProblem(args);
  if (problem.rows == 0) return absl::OkStatus();
  const Scalars s = MakeScalars(args, problem);
  const TensorView& x = args.Input("x");
  const TensorView& weight = args.Input("weight");
  const TensorView& gate = GateOf(args, problem.convention);
  const MutableTensorView& y = args.Output("y");
  const MutableTensorView& rstd = args.Output("rstd");
  const ForwardPointers p = {x.data, weight.data, gate.data, y.data, rstd.as<float>()};
  cudaStream_t stream = cuda::CudaStream(args.stream);
  const bool streamable = problem.length % kGroup == 0 && problem.length <= kRegisterLengthMax &&
                          Streamable(x) && Streamable(weight) && Streamable(gate) && Streamable(y);
  return WithConvention(problem.convention, [&](auto convention) -> absl::Status {
    constexpr Convention kConvention = decltype(convention)::value;
    if (streamable) {
      return WithShape(problem.length, [&](auto shape) -> absl::Status {
        constexpr int kThreads = BlockThreads(shape.lanes);
        RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                             cuda::GridBlocks(problem.rows, kThreads / shape.lanes));
        return cuda::Launch(ForwardKernel<X, kConvention, shape.lanes, shape.vectors>, blocks,
                            kThreads, stream, p, s);
      });
    }
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows, 1));
    return cuda::Launch(ForwardElementsKernel<X, kConvention>, blocks,
                        ElementThreads(problem.length), stream, p, s, IndexOf(x), IndexOf(gate),
                        IndexOf(weight));
  });
}

}  // namespace rlk::rms_norm
