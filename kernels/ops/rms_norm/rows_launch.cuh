// Launcher of what stays in its row of the backward, for one dtype of x.
#pragma once

#include "kernels/ops/rms_norm/backward_launch.cuh"

namespace rlk::rms_norm {

template <typename X, Convention kConvention>
absl::Status LaunchRows(const BackwardCall& call) {
  const int64_t rows = call.problem.rows;
  if (rows == 0) return absl::OkStatus();
  if (call.streamable) {
    return WithShape(call.problem.length, [&](auto shape) -> absl::Status {
      constexpr int kThreads = BlockThreads(shape.lanes);
      RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(rows, kThreads / shape.lanes));
      return cuda::Launch(BackwardRowsKernel<X, kConvention, shape.lanes, shape.vectors>, blocks,
                          kThreads, call.stream, call.rows, call.scalars);
    });
  }
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(rows, 1));
  return cuda::Launch(BackwardRowsElementsKernel<X, kConvention>, blocks,
                      ElementThreads(call.problem.length), call.stream, call.rows, call.scalars,
                      call.index);
}

// grad_x, grad_gate and the row statistic.
template <typename X>
absl::Status LaunchBackwardRows(const KernelArgs& args) {
  const BackwardCall call = MakeBackwardCall(args);
  return WithConvention(call.problem.convention, [&](auto convention) {
    return LaunchRows<X, decltype(convention)::value>(call);
  });
}

}  // namespace rlk::rms_norm
