// Launcher of the weight gradient for one dtype of x.
#pragma once

#include "kernels/cuda/tensor_map.h"
#include "kernels/ops/rms_norm/backward_launch.cuh"
#include "kernels/ops/rms_norm/left_fold_sm90.cuh"

namespace rlk::rms_norm {

// A left fold by blocks of 16 columns, 128 rows a tile. With a block to each multiprocessor more
// tiles are on their way from memory; with more blocks there are enough.
template <typename X, typename G, Convention kConvention>
absl::Status LaunchLeftFold(const BackwardCall& call) {
  constexpr int kColumns = 16, kTileRows = 128;
  using Loader = TermLoader<X, G, kConvention>;
  const auto blocks = static_cast<unsigned>(call.problem.length) / kColumns;
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  if constexpr (!IsGated(kConvention)) {
    if (blocks <= static_cast<unsigned>(device.multiprocessors)) {
      return cuda::Launch(LeftFoldKernel<X, Loader, kColumns, kTileRows, 6>, blocks,
                          kLeftFoldThreads, call.stream, call.fold, call.scalars);
    }
  }
  return cuda::Launch(LeftFoldKernel<X, Loader, kColumns, kTileRows, 3>, blocks, kLeftFoldThreads,
                      call.stream, call.fold, call.scalars);
}

// The same where there are bulk tensor copies.
template <typename X, Convention kConvention, int kStages>
absl::Status LaunchWideLeftFold(const BackwardCall& call) {
  using Fold = WideFold<X, kConvention, kStages>;
  const auto tiles = [&](const void* matrix) {
    return cuda::PlainTiles(matrix, sizeof(X), call.problem.rows, call.problem.length,
                            Fold::kTileRows, Fold::kColumns);
  };
  FoldMaps maps = {};
  RLK_ASSIGN_OR_RETURN(maps.x, tiles(call.fold.x));
  RLK_ASSIGN_OR_RETURN(maps.grad_y, tiles(call.fold.grad_y));
  if constexpr (IsGated(kConvention)) {
    RLK_ASSIGN_OR_RETURN(maps.gate, tiles(call.fold.gate));
  }
  cuda::LaunchShape shape;
  RLK_ASSIGN_OR_RETURN(shape.blocks, cuda::GridBlocks(call.problem.length, Fold::kColumns));
  shape.threads = Fold::kThreads;
  shape.shared_bytes = sizeof(typename Fold::Memory);
  return cuda::LaunchWith(WideLeftFoldKernel<X, kConvention, kStages>, shape, call.stream, maps,
                          call.fold, call.scalars);
}

template <typename X, typename G, Convention kConvention>
absl::Status LaunchFold(const BackwardCall& call) {
  const int length = call.scalars.length;
  const bool chunked = call.problem.fold == Fold::kChunk128;
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  const bool bulk = !chunked && sizeof(X) == 2 && std::is_same_v<X, G> && device.capability >= 90;
  const bool whole = length % (chunked || bulk ? kGroup : 16) == 0;
  if (!call.streamable || !whole || call.problem.rows == 0) {
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(length, kChunkThreads));
    return cuda::Launch(FoldElementsKernel<X, kConvention>, blocks, kChunkThreads, call.stream,
                        call.rows, call.index, call.fold, call.carry_index, call.scalars, chunked);
  }
  if constexpr (sizeof(X) == 2 && std::is_same_v<X, G>) {
    if (bulk && length <= 16 * device.multiprocessors) {
      return LaunchWideLeftFold<X, kConvention, 4>(call);
    }
    if (bulk) return LaunchWideLeftFold<X, kConvention, 3>(call);
  }
  if (!chunked) return LaunchLeftFold<X, G, kConvention>(call);
  const int64_t chunks = (call.problem.rows + kChunkRows - 1) / kChunkRows;
  RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                       cuda::GridBlocks(chunks * (length / kGroup), kChunkThreads));
  RLK_RETURN_IF_ERROR(cuda::Launch(ChunkPartialsKernel<X, G, kConvention>, blocks, kChunkThreads,
                                   call.stream, call.fold, call.scalars));
  return LaunchChunkFold<X>(call);
}

// The weight gradient, where it is wanted. Needs the row statistic of LaunchBackwardRows.
template <typename X>
absl::Status LaunchBackwardFold(const KernelArgs& args) {
  const BackwardCall call = MakeBackwardCall(args);
  if (!WantsWeightGradient(call)) return absl::OkStatus();
  return WithConvention(call.problem.convention, [&](auto convention) -> absl::Status {
    constexpr Convention kConvention = decltype(convention)::value;
    if (std::is_same_v<X, float> || call.scalars.grad_y_is_f32) {
      return LaunchFold<X, float, kConvention>(call);
    }
    return LaunchFold<X, X, kConvention>(call);
  });
}

}  // namespace rlk::rms_norm
