// Launcher of the forward for one dtype of x.
#pragma once

#include "kernels/ops/rms_norm/forward.cuh"
#include "kernels/ops/rms_norm/forward_few.cuh"
#include "kernels/ops/rms_norm/launch.cuh"
#include "kernels/ops/rms_norm/narrow.cuh"
#include "kernels/ops/rms_norm/workspace.h"

namespace rlk::rms_norm {

// Up to about as many threads as fit on the device at once, a thread an accumulator is quickest.
inline constexpr int64_t kFewThreadsMax = int64_t{1} << 18;

inline bool IsFew(const Problem& problem) {
  const int width = arith::RowSumWidth(problem.length);
  return width >= 32 && width <= 1024 && problem.rows * width <= kFewThreadsMax;
}

template <typename X, Convention kConvention>
absl::Status LaunchFew(const Problem& problem, const ForwardPointers& p, const Scalars& s,
                       cudaStream_t stream) {
  const auto threads = static_cast<unsigned>(arith::RowSumWidth(problem.length));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows, 1));
  if (problem.length <= threads) {
    return cuda::Launch(ForwardFewKernel<X, kConvention, 1>, blocks, threads, stream, p, s);
  }
  return cuda::Launch(ForwardFewKernel<X, kConvention, kFewColumns>, blocks, threads, stream, p, s);
}

template <typename X, Convention kConvention>
absl::Status LaunchManyRows(const Problem& problem, const ForwardPointers& p, const Scalars& s,
                            cudaStream_t stream) {
  if (problem.length <= kNarrowLengthMax) {
    return WithNarrowLanes(problem.length, [&](auto lanes) -> absl::Status {
      constexpr int kRows = kNarrowForwardRows * kNarrowForwardThreads / lanes();
      RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows, kRows));
      return cuda::Launch(ForwardNarrowKernel<X, kConvention, lanes()>, blocks,
                          kNarrowForwardThreads, stream, p, s);
    });
  }
  return WithWideShape(problem.length, [&](auto shape) -> absl::Status {
    constexpr int kThreads = BlockThreads(shape.lanes);
    RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                         cuda::GridBlocks(problem.rows, kThreads / shape.lanes));
    return cuda::Launch(ForwardKernel<X, kConvention, shape.lanes, shape.vectors>, blocks, kThreads,
                        stream, p, s);
  });
}

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
  const bool contiguous =
      x.contiguous() && weight.contiguous() && (!gate.present() || gate.contiguous());
  const bool streamable = problem.length % kGroup == 0 && problem.length <= kRegisterLengthMax &&
                          Streamable(x) && Streamable(weight) && Streamable(gate) && Streamable(y);
  return WithConvention(problem.convention, [&](auto convention) -> absl::Status {
    constexpr Convention kConvention = decltype(convention)::value;
    if (contiguous && IsFew(problem)) return LaunchFew<X, kConvention>(problem, p, s, stream);
    if (streamable) return LaunchManyRows<X, kConvention>(problem, p, s, stream);
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows, 1));
    return cuda::Launch(ForwardElementsKernel<X, kConvention>, blocks,
                        ElementThreads(problem.length), stream, p, s, IndexOf(x), IndexOf(gate),
                        IndexOf(weight));
  });
}

}  // namespace rlk::rms_norm
