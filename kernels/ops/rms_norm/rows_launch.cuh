// Launcher of what stays in its row of the backward, for one dtype of x.
#pragma once

#include "kernels/ops/rms_norm/backward_launch.cuh"

namespace rlk::rms_norm {

template <typename X, typename G, Convention kConvention>
absl::Status LaunchWideRows(const BackwardCall& call) {
  return WithWideShape(call.problem.length, [&](auto shape) -> absl::Status {
    constexpr int kThreads = BlockThreads(shape.lanes);
    constexpr int kBlocks = RowsBlocks<X, kConvention, shape.lanes, shape.vectors>();
    RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                         cuda::GridBlocks(call.problem.rows, kThreads / shape.lanes));
    RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
    return cuda::Launch(BackwardRowsKernel<X, G, kConvention, shape.lanes, shape.vectors>,
                        std::min(blocks, static_cast<unsigned>(device.multiprocessors * kBlocks)),
                        kThreads, call.stream, call.rows, call.scalars);
  });
}

template <typename X, Convention kConvention>
absl::Status LaunchRows(const BackwardCall& call) {
  if (call.problem.rows == 0) return absl::OkStatus();
  if (call.streamable) {
    if (std::is_same_v<X, float> || call.scalars.grad_y_is_f32) {
      return LaunchWideRows<X, float, kConvention>(call);
    }
    return LaunchWideRows<X, X, kConvention>(call);
  }
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(call.problem.rows, 1));
  return cuda::Launch(BackwardRowsElementsKernel<X, kConvention>, blocks,
                      ElementThreads(call.problem.length), call.stream, call.rows, call.scalars,
                      call.index);
}

// grad_x, grad_gate and the row statistic, for rows that are not narrow.
template <typename X>
absl::Status LaunchBackwardRows(const KernelArgs& args) {
  const BackwardCall call = MakeBackwardCall(args);
  return WithConvention(call.problem.convention, [&](auto convention) {
    return LaunchRows<X, decltype(convention)::value>(call);
  });
}

}  // namespace rlk::rms_norm
