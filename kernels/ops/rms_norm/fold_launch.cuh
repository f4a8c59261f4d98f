// Launcher of the weight gradient for one dtype of x.
#pragma once

#include "kernels/ops/rms_norm/backward_launch.cuh"

namespace rlk::rms_norm {

template <typename X, typename G, Convention kConvention>
absl::Status LaunchFold(const BackwardCall& call) {
  const int length = call.scalars.length;
  const bool chunked = call.problem.fold == Fold::kChunk128;
  const bool whole = length % (chunked ? kGroup : kFoldColumns) == 0;
  if (!call.streamable || !whole || call.problem.rows == 0) {
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(length, kChunkThreads));
    return cuda::Launch(FoldElementsKernel<X, kConvention>, blocks, kChunkThreads, call.stream,
                        call.rows, call.index, call.fold, call.carry_index, call.scalars, chunked);
  }
  if (chunked) {
    const int64_t chunks = (call.problem.rows + kChunkRows - 1) / kChunkRows;
    RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                         cuda::GridBlocks(chunks * (length / kGroup), kChunkThreads));
    RLK_RETURN_IF_ERROR(cuda::Launch(ChunkPartialsKernel<X, G, kConvention>, blocks, kChunkThreads,
                                     call.stream, call.fold, call.scalars));
    RLK_ASSIGN_OR_RETURN(const unsigned fold_blocks, cuda::GridBlocks(length, kChunkThreads));
    return cuda::Launch(ChunkFoldKernel<X>, fold_blocks, kChunkThreads, call.stream, call.fold,
                        call.scalars);
  }
  return cuda::Launch(LeftFoldKernel<X, G, kConvention>,
                      static_cast<unsigned>(length) / kFoldColumns, kLeftFoldThreads, call.stream,
                      call.fold, call.scalars);
}

// The weight gradient, where it is wanted. Needs the row statistic of LaunchBackwardRows.
template <typename X>
absl::Status LaunchBackwardFold(const KernelArgs& args) {
  const BackwardCall call = MakeBackwardCall(args);
  if (call.fold.grad_weight == nullptr && call.fold.accumulator == nullptr) return absl::OkStatus();
  return WithConvention(call.problem.convention, [&](auto convention) -> absl::Status {
    constexpr Convention kConvention = decltype(convention)::value;
    if (std::is_same_v<X, float> || call.scalars.grad_y_is_f32) {
      return LaunchFold<X, float, kConvention>(call);
    }
    return LaunchFold<X, X, kConvention>(call);
  });
}

}  // namespace rlk::rms_norm
