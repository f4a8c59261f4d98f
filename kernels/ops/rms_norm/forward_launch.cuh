// Launcher of the forward for one dtype of x.
#pragma once

#include "kernels/ops/rms_norm/forward.cuh"
#include "kernels/ops/rms_norm/forward_few.cuh"
#include "kernels/ops/rms_norm/launch.cuh"
#include "kernels/ops/rms_norm/narrow.cuh"
#include "kernels/ops/rms_norm/workspace.h"

namespace rlk::rms_norm {

// Up to about as many accumulators as threads fit on the device at once, these kernels are
// quickest.
inline constexpr int64_t kFewThreadsMax = int64_t{1} << 18;

inline bool IsFew(const Problem& problem) {
  const int width = arith::RowSumWidth(problem.length);
  return width >= 32 && width <= 1024 && problem.rows * width <= kFewThreadsMax;
}

template <typename X, typename W, Convention kConvention, int kThreads>
absl::Status LaunchPairsOf(const Problem& problem, const ForwardPointers& p, const Scalars& s,
                           cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows, 1));
  if (problem.length == 2 * kThreads * kFewColumns) {
    return cuda::Launch(ForwardPairsKernel<X, W, kConvention, kThreads, true>, blocks, kThreads,
                        stream, p, s);
  }
  return cuda::Launch(ForwardPairsKernel<X, W, kConvention, kThreads, false>, blocks, kThreads,
                      stream, p, s);
}

template <typename X, typename W, Convention kConvention>
absl::Status LaunchPairs(const Problem& problem, const ForwardPointers& p, const Scalars& s,
                         cudaStream_t stream) {
  if (arith::RowSumWidth(problem.length) == 256) {
    return LaunchPairsOf<X, W, kConvention, 128>(problem, p, s, stream);
  }
  return LaunchPairsOf<X, W, kConvention, 512>(problem, p, s, stream);
}

template <typename X, Convention kConvention>
absl::Status LaunchFew(const Problem& problem, bool streamable, const ForwardPointers& p,
                       const Scalars& s, cudaStream_t stream) {
  const auto threads = static_cast<unsigned>(arith::RowSumWidth(problem.length));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows, 1));
  if (problem.length <= threads) {
    return cuda::Launch(ForwardFewKernel<X, kConvention, 1>, blocks, threads, stream, p, s);
  }
  // Pairs are quicker, but for a few rows of the least arithmetic, unless their length is whole.
  const bool pairs = kConvention != Convention::kPlain || threads > 256 || problem.rows >= 256 ||
                     problem.length == int64_t{threads} * kFewColumns;
  if (!streamable || !pairs) {
    return cuda::Launch(ForwardFewKernel<X, kConvention, kFewColumns>, blocks, threads, stream, p,
                        s);
  }
  if (std::is_same_v<X, float> || s.weight_is_f32) {
    return LaunchPairs<X, float, kConvention>(problem, p, s, stream);
  }
  return LaunchPairs<X, X, kConvention>(problem, p, s, stream);
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
    if (contiguous && IsFew(problem)) {
      return LaunchFew<X, kConvention>(problem, streamable, p, s, stream);
    }
    if (streamable) return LaunchManyRows<X, kConvention>(problem, p, s, stream);
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows, 1));
    return cuda::Launch(ForwardElementsKernel<X, kConvention>, blocks,
                        ElementThreads(problem.length), stream, p, s, IndexOf(x), IndexOf(gate),
                        IndexOf(weight));
  });
}

}  // namespace rlk::rms_norm
