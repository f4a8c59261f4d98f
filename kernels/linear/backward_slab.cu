#include <algorithm>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/backward_slab.cuh"
#include "kernels/linear/backward_slab.h"
#include "kernels/linear/backward_slab_fold.cuh"
#include "kernels/linear/shared_memory.h"

namespace rlk::linear {
namespace {

// The ring of partial sums, which should stay in L2. It has at least two batches.
constexpr int64_t kRingBytes = int64_t{34} << 20;
constexpr int kRingMin = 2 * kSlabBatchMax;

// Rows of a sum, terms of a part, parts of a stage, stages.
using Slab128 = TilePlan<128, 16, 1, 6>;
using Slab64 = TilePlan<64, 16, 1, 4>;
using Slab32 = TilePlan<32, 16, 1, 3>;
using Slab16 = TilePlan<16, 8, 1, 3>;

template <typename P>
struct SlabShared {
  TileRing<P> ring;
  FoldStage<P> folds;
};

template <typename P, bool kF32, Form kGrad>
__global__ void __launch_bounds__(kSlabThreads, 1)
    SlabKernel(const __grid_constant__ SlabWork work) {
  static_assert(sizeof(SlabShared<P>) <= kSharedBytesPerBlock);
  extern __shared__ __align__(16) std::byte shared[];
  auto& [ring, folds] = *reinterpret_cast<SlabShared<P>*>(shared);
  ring.Init();
  if (threadIdx.x < kBringers) {
    GiveRegisters<kSlabOtherRegisters>();
    BringSlab<P, kF32, kGrad>(work, ring);
  } else if (threadIdx.x < kBringers + kFolders) {
    GiveRegisters<kSlabOtherRegisters>();
    FoldSlab<P>(work, folds);
  } else {
    TakeRegisters<kSlabAdderRegisters>();
    AddSlab<P>(work, ring);
  }
}

int64_t Tiles(const Shape& shape) { return (shape.inputs + kTileColumns - 1) / kTileColumns; }
int64_t Chunks(const Shape& shape) { return (shape.outputs + kSlabChunk - 1) / kSlabChunk; }

// The chunks of a ring of so many tiles.
template <typename P>
int RingOf(int64_t tiles) {
  const int64_t chunk = tiles * P::kRows * kTileColumns * static_cast<int64_t>(sizeof(float));
  return static_cast<int>(
      std::max<int64_t>(kRingMin, kRingBytes / chunk / kSlabBatchMax * kSlabBatchMax));
}

// Some columns of a slab, whose blocks must all run at a time.
template <typename P, bool kF32, Form kGrad>
absl::Status LaunchColumns(SlabWork work, int multiprocessors, void* workspace,
                           cudaStream_t stream) {
  const int of_tile = multiprocessors * (kFolders / 32) / work.tiles;
  work.groups = SlabGroups((P::kRows + of_tile - 1) / of_tile);
  work.batch = SlabBatch<P>(work.groups);
  work.folding = static_cast<uint32_t>(work.tiles * std::min(of_tile, P::kRows));
  work.ring = RingOf<P>(work.tiles);
  work.partial = static_cast<float4*>(workspace);
  work.written = reinterpret_cast<uint32_t*>(work.partial + int64_t{work.tiles} * work.ring *
                                                                (P::kRows * kTileColumns / 4));
  const int64_t flags = int64_t{work.tiles} * work.chunks;
  work.folded = work.written + flags;
  RLK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
      work.written, 0, static_cast<size_t>(flags + work.chunks) * sizeof(uint32_t), stream));
  const auto* kernel = reinterpret_cast<const void*>(&SlabKernel<P, kF32, kGrad>);
  constexpr int kBytes = static_cast<int>(sizeof(SlabShared<P>));
  RLK_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  void* arguments[] = {&work};
  RLK_CUDA_RETURN_IF_ERROR(
      cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(multiprocessors)),
                                  dim3(kSlabThreads), arguments, kBytes, stream));
  return absl::OkStatus();
}

template <typename P, bool kF32, Form kGrad>
absl::Status LaunchSlab(const TiledBackwardInput& problem, int64_t first_row, void* workspace,
                        cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  SlabWork work = {};
  work.problem = problem;
  work.problem.shape.rows = std::min(problem.shape.rows, first_row + P::kRows);
  work.vector = VectorGradient(problem.grad);
  work.first_row = first_row;
  work.chunks = static_cast<int>(Chunks(problem.shape));
  const int64_t warps = int64_t{device.multiprocessors} * (kFolders / 32);
  const int64_t most = std::max<int64_t>(1, warps / (P::kRows / kSlabGroupsMax));
  const int64_t tiles = Tiles(problem.shape);
  for (int64_t tile = 0; tile < tiles; tile += most) {
    work.first_column = tile * kTileColumns;
    work.tiles = static_cast<int>(std::min(most, tiles - tile));
    RLK_RETURN_IF_ERROR(
        (LaunchColumns<P, kF32, kGrad>(work, device.multiprocessors, workspace, stream)));
  }
  return absl::OkStatus();
}

using Launcher = absl::Status (*)(const TiledBackwardInput&, int64_t, void*, cudaStream_t);

// FP32 weights are twice as many bytes, and fill more registers on their way: from this many rows.
constexpr int64_t kRowsF32 = 64;

template <typename P>
Launcher LauncherFor(const TiledBackwardInput& problem) {
  if constexpr (P::kRows >= kRowsF32) {
    if (problem.weight.dtype == DType::kF32) return &LaunchSlab<P, true, Form::kAny>;
  }
  const bool bf16 = !problem.grad.f32 && VectorGradient(problem.grad);
  return bf16 ? &LaunchSlab<P, false, Form::kBf16> : &LaunchSlab<P, false, Form::kAny>;
}

}  // namespace

int64_t SlabBytes(const Shape& shape) {
  const int64_t tiles = Tiles(shape);
  const int64_t least = tiles * kRingMin * kTileRows * kTileColumns * int64_t{sizeof(float)};
  const int64_t flags = (tiles + 1) * Chunks(shape) * int64_t{sizeof(uint32_t)};
  return std::max(kRingBytes, least) + flags;
}

absl::Status LaunchSlabs(const TiledBackwardInput& problem, void* workspace, StreamRef stream) {
  const int64_t rows = problem.shape.rows;
  const int64_t least = problem.weight.dtype == DType::kF32 ? kRowsF32 : 0;
  for (int64_t row = 0; row < rows;) {
    const int64_t left = std::max(rows - row, least);
    const auto [launch, count] = left > 96   ? std::pair(LauncherFor<Slab128>(problem), 128)
                                 : left > 32 ? std::pair(LauncherFor<Slab64>(problem), 64)
                                 : left > 16 ? std::pair(LauncherFor<Slab32>(problem), 32)
                                             : std::pair(LauncherFor<Slab16>(problem), 16);
    RLK_RETURN_IF_ERROR(launch(problem, row, workspace, cuda::CudaStream(stream)));
    row += count;
  }
  return absl::OkStatus();
}

}  // namespace rlk::linear
