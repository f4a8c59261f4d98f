// Launcher of chunk128 in one pass, for one 16-bit dtype of x and grad_y.
#pragma once

#include "kernels/ops/rms_norm/backward_launch.cuh"
#include "kernels/ops/rms_norm/chunk_cluster.cuh"

namespace rlk::rms_norm {

template <typename X, typename Shape>
absl::Status LaunchCluster(const BackwardCall& call) {
  const int64_t chunks = (call.problem.rows + kChunkRows - 1) / kChunkRows;
  cuda::LaunchShape shape;
  RLK_ASSIGN_OR_RETURN(shape.blocks, cuda::GridBlocks(chunks * Shape::ranks, 1));
  shape.threads = kClusterThreads;
  shape.cluster = Shape::ranks;
  shape.shared_bytes = sizeof(ChunkMemory<X, Shape>);
  RLK_RETURN_IF_ERROR(cuda::LaunchWith(ChunkClusterKernel<X, Convention::kPlain, Shape>, shape,
                                       call.stream, call.rows, call.fold, call.scalars));
  return LaunchChunkFold<X>(call);
}

// True where this was the call's whole work; false where it does not apply.
template <typename X>
absl::StatusOr<bool> LaunchBackwardCluster(const KernelArgs& args) {
  const BackwardCall call = MakeBackwardCall(args);
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  const int64_t length = call.problem.length;
  if (device.capability < 90 || !call.streamable || call.problem.rows == 0 ||
      length <= kNarrowLengthMax || call.problem.fold != Fold::kChunk128 ||
      call.problem.convention != Convention::kPlain || call.scalars.grad_y_is_f32 ||
      !WantsWeightGradient(call)) {
    return false;
  }
  if (length <= 2048) {
    RLK_RETURN_IF_ERROR((LaunchCluster<X, ChunkShape<256, 2, 8>>(call)));
  } else if (length <= 5120) {
    RLK_RETURN_IF_ERROR((LaunchCluster<X, ChunkShape<1024, 2, 5>>(call)));
  } else {
    RLK_RETURN_IF_ERROR((LaunchCluster<X, ChunkShape<1024, 2, 8>>(call)));
  }
  return true;
}

}  // namespace rlk::rms_norm
