// Launcher of the whole backward of narrow rows, for one dtype of x.
#pragma once

#include "kernels/ops/rms_norm/backward_launch.cuh"
#include "kernels/ops/rms_norm/backward_narrow.cuh"
#include "kernels/ops/rms_norm/chunk_narrow.cuh"
#include "kernels/ops/rms_norm/left_fold_sm90.cuh"

namespace rlk::rms_norm {

template <typename X, typename G, Convention kConvention, int kLanes>
absl::Status LaunchNarrowKernel(const BackwardCall& call, NarrowFold fold) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(call.scalars.rows, kFoldRows));
  return cuda::Launch(BackwardNarrowKernel<X, G, kConvention, kLanes>, blocks, kNarrowThreads,
                      call.stream, call.rows, call.fold, call.scalars, fold);
}

template <typename X, Convention kConvention, int kLanes, Activation kActivation>
absl::Status LaunchChunkNarrow(const BackwardCall& call) {
  cuda::LaunchShape shape;
  RLK_ASSIGN_OR_RETURN(shape.blocks, cuda::GridBlocks(call.scalars.rows, kFoldRows));
  shape.threads = kNarrowThreads;
  shape.shared_bytes = sizeof(ChunkNarrowMemory<kConvention, kLanes>);
  return cuda::LaunchWith(ChunkNarrowKernel<X, kConvention, kLanes, kActivation>, shape,
                          call.stream, call.rows, call.fold, call.scalars);
}

// The rows of chunk128 and the sums of its blocks.
template <typename X, typename G, Convention kConvention, int kLanes>
absl::Status LaunchNarrowChunks(const BackwardCall& call) {
  if constexpr (sizeof(X) == 2 && std::is_same_v<X, G>) {
    if constexpr (kConvention == Convention::kGated) {
      if (call.scalars.sigmoid) {
        return LaunchChunkNarrow<X, kConvention, kLanes, Activation::kSigmoid>(call);
      }
    }
    return LaunchChunkNarrow<X, kConvention, kLanes, Activation::kSilu>(call);
  } else {
    return LaunchNarrowKernel<X, G, kConvention, kLanes>(call, NarrowFold::kChunk);
  }
}

// The rows [begin, begin + rows) of a call.
template <typename X, typename G>
BackwardCall Segment(const BackwardCall& call, int64_t begin, int64_t rows) {
  BackwardCall segment = call;
  const int64_t at = begin * call.scalars.length;
  const auto move = [at](const void* p, auto element) -> const void* {
    return p == nullptr ? nullptr : static_cast<const decltype(element)*>(p) + at;
  };
  const auto move_output = [at](void* p) -> void* {
    return p == nullptr ? nullptr : static_cast<X*>(p) + at;
  };
  segment.scalars.rows = rows;
  segment.fold.ready += begin / kFoldRows;
  segment.rows.x = move(call.rows.x, X{});
  segment.rows.gate = move(call.rows.gate, X{});
  segment.rows.grad_y = move(call.rows.grad_y, G{});
  segment.rows.grad_x = move_output(call.rows.grad_x);
  segment.rows.grad_gate = move_output(call.rows.grad_gate);
  if (call.rows.rstd_in != nullptr) segment.rows.rstd_in += begin;
  const bool first = begin == 0, last = begin + rows == call.scalars.rows;
  if (!first) segment.fold.carry = call.sum;
  if (!last) {
    segment.fold.grad_weight = nullptr;
    segment.fold.accumulator = call.sum;
  }
  return segment;
}

// From here on a fold that runs beside the rows pays for what it has to prepare.
inline constexpr int64_t kRowsBeside = 4096;

// The rows and, beside them, their left fold. They do not share multiprocessors, where the rows
// would slow the chain of adds down: each takes one alone by the shared memory it asks for.
template <typename X, typename G, Convention kConvention, int kLanes>
absl::Status LaunchNarrowBesideFold(const BackwardCall& call, int multiprocessors) {
  constexpr size_t kAlone = 84 * 1024;  // beside the kernel's own 33 KiB
  const auto kernel = BackwardNarrowStoringKernel<X, G, kConvention, kLanes>;
  RLK_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                cudaFuncAttributePreferredSharedMemoryCarveout,
                                                cudaSharedmemCarveoutMaxShared));
  cuda::LaunchShape fold;
  RLK_ASSIGN_OR_RETURN(fold.blocks, cuda::GridBlocks(call.problem.length, StoredFold::kColumns));
  fold.threads = StoredFold::kThreads;
  fold.shared_bytes = sizeof(StoredFold::Memory);
  fold.starts_early = true;
  cuda::LaunchShape rows;
  RLK_ASSIGN_OR_RETURN(rows.blocks, cuda::GridBlocks(call.scalars.rows, kFoldRows));
  const int left = multiprocessors - static_cast<int>(fold.blocks);
  rows.blocks = std::min(rows.blocks, static_cast<unsigned>(std::max(left, 1)));
  rows.threads = kNarrowThreads;
  rows.shared_bytes = kAlone;
  RLK_RETURN_IF_ERROR(
      cuda::LaunchWith(kernel, rows, call.stream, call.rows, call.fold, call.scalars));
  return cuda::LaunchWith(StoredLeftFoldKernel<X>, fold, call.stream, call.fold, call.scalars);
}

// A left fold over segments of rows, so that the stored terms are bounded: the sum goes from one to
// the next.
template <typename X, typename G, Convention kConvention, int kLanes>
absl::Status LaunchNarrowLeftFold(const BackwardCall& call) {
  constexpr int kColumns = 8, kTileRows = 256, kDepth = 3;
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  const bool beside = device.capability >= 90 && call.scalars.rows >= kRowsBeside;
  if (beside) {
    const int64_t blocks = (call.scalars.rows + kFoldRows - 1) / kFoldRows;
    RLK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
        call.fold.ready, 0, static_cast<size_t>(blocks) * sizeof(uint32_t), call.stream));
  }
  const int64_t step = SegmentRows(call.problem);
  for (int64_t begin = 0; begin < call.scalars.rows; begin += step) {
    const BackwardCall segment =
        Segment<X, G>(call, begin, std::min(step, call.scalars.rows - begin));
    if (beside) {
      RLK_RETURN_IF_ERROR(
          (LaunchNarrowBesideFold<X, G, kConvention, kLanes>(segment, device.multiprocessors)));
      continue;
    }
    RLK_RETURN_IF_ERROR(
        (LaunchNarrowKernel<X, G, kConvention, kLanes>(segment, NarrowFold::kStore)));
    RLK_RETURN_IF_ERROR(
        cuda::Launch(LeftFoldKernel<X, StoredTermLoader, kColumns, kTileRows, kDepth>,
                     static_cast<unsigned>(call.scalars.length / kColumns), kLeftFoldThreads,
                     call.stream, segment.fold, segment.scalars));
  }
  return absl::OkStatus();
}

template <typename X, typename G, Convention kConvention>
absl::Status LaunchNarrow(const BackwardCall& call) {
  return WithNarrowLanes(call.problem.length, [&](auto lanes) -> absl::Status {
    if (!WantsWeightGradient(call)) {
      return LaunchNarrowKernel<X, G, kConvention, lanes()>(call, NarrowFold::kNone);
    }
    if (StoresTerms(call.problem)) return LaunchNarrowLeftFold<X, G, kConvention, lanes()>(call);
    RLK_RETURN_IF_ERROR((LaunchNarrowChunks<X, G, kConvention, lanes()>(call)));
    return LaunchChunkFold<X>(call);
  });
}

// True where this was the call's whole work; false where the rows are not narrow.
template <typename X>
absl::StatusOr<bool> LaunchBackwardNarrow(const KernelArgs& args) {
  const BackwardCall call = MakeBackwardCall(args);
  if (!call.streamable || call.problem.rows == 0 || call.problem.length > kNarrowLengthMax) {
    return false;
  }
  RLK_RETURN_IF_ERROR(WithConvention(call.problem.convention, [&](auto convention) {
    constexpr Convention kConvention = decltype(convention)::value;
    if (std::is_same_v<X, float> || call.scalars.grad_y_is_f32) {
      return LaunchNarrow<X, float, kConvention>(call);
    }
    return LaunchNarrow<X, X, kConvention>(call);
  }));
  return true;
}

}  // namespace rlk::rms_norm
